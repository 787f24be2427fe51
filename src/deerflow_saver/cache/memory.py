"""The in-process cache: least recently used threads go first, within a budget in bytes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from cachetools import LRUCache

from deerflow_saver.cache.base import ChainKey
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.facts import ChainBusy
from deerflow_saver.history.minting import now

__all__ = ["DEFAULT_MAX_BYTES", "MemoryHistoryCache"]

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
_LITTLE = 32
"""The part of a chain by which it may grow before the accounts are put right."""


class _Chains(LRUCache[ChainKey, Chain]):
    """cachetools' LRU, keeping sizes apart so that a chain may grow after it was stored."""

    def __init__(self, max_bytes: int, closed: Callable[[ChainKey, Chain], None]) -> None:
        super().__init__(max_bytes, getsizeof=lambda chain: chain.measured)
        self._closed = closed

    def popitem(self) -> tuple[ChainKey, Chain]:
        key, chain = super().popitem()
        self._closed(key, chain)
        return key, chain


class MemoryHistoryCache:
    """Keeps histories of this process in memory.

    The budget covers everything kept: frozen values, the objects handed out last, and the
    bookkeeping. No thread may use more than half of it, so one busy thread never evicts
    all others; what a thread used longest ago goes first. One cache may serve several
    savers: each keeps its threads under its own prefix.

    Args:
        max_bytes: the budget in bytes, 64 MiB by default; 0 disables the cache.

    Raises:
        InvalidConfigError: `max_bytes` is not an integer, or negative.

    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int):
            msg = f"max_bytes must be an int (bytes), got {type(max_bytes).__name__}"
            raise InvalidConfigError(msg)
        if max_bytes < 0:
            msg = f"max_bytes must be >= 0 (0 disables the cache), got {max_bytes}"
            raise InvalidConfigError(msg)
        self._max_bytes = max_bytes
        self._lock = threading.RLock()
        self._chains = _Chains(max_bytes, self._evicted)
        self._threads: dict[tuple[str, str], dict[ChainKey, Chain]] = {}
        self._evictions = 0
        self._dropped = 0

    @property
    def enabled(self) -> bool:
        """False when the budget is zero."""
        return self._max_bytes > 0

    @property
    def dropped(self) -> int:
        """When a chain was last evicted or purged."""
        return self._dropped

    def chain(self, key: ChainKey, make: Callable[[], Chain]) -> Chain:
        """The chain of `key`, made by `make` if there is none, marked as just used."""
        while True:
            with self._lock:
                chain = self._chains.get(key)
                dropped = self._dropped
            if chain is not None:
                return chain
            chain = make()  # outside the lock: making may run the garbage collector
            chain.measured = chain.size
            if chain.measured > self._max_bytes:
                return chain  # serves this call and is forgotten
            with self._lock:
                if key not in self._chains and self._dropped == dropped:
                    self._chains[key] = chain
                    self._threads.setdefault((key.prefix, key.thread_id), {})[key] = chain
                    return chain

    def chains(self, prefix: str, thread_id: str) -> list[tuple[ChainKey, Chain]]:
        """All chains of a thread at this moment."""
        with self._lock:
            return list(self._threads.get((prefix, thread_id), {}).items())

    def measure(self, key: ChainKey, chain: Chain) -> None:
        """Take note of the chain's size now, and evict what no longer fits."""
        try:
            if not self._measure(chain):
                return
        except ChainBusy:
            return
        with self._lock:
            if self._chains.get(key) is chain:
                del self._chains[key]
                self._chains[key] = chain  # cachetools evicts others until this one fits

    def _measure(self, chain: Chain) -> bool:
        """Measure the chain and make it fit; whether its size changed by more than a little."""
        share = self._max_bytes // 2
        with chain.lock:
            size = chain.size
            if chain.closed or (size <= share and abs(size - chain.measured) * _LITTLE <= size):
                return False
            chain.measured = size
            if size > share:
                chain.trim(share)
                chain.measured = chain.size
        return True

    def purge_thread(self, prefix: str, thread_id: str) -> None:
        """Close and drop every chain of a thread."""
        for key, chain in self.chains(prefix, thread_id):
            self._drop(key, chain)

    def purge(self, prefix: str) -> None:
        """Close and drop every chain of a database."""
        with self._lock:
            threads = [thread_id for p, thread_id in self._threads if p == prefix]
        for thread_id in threads:
            self.purge_thread(prefix, thread_id)

    def usage(self) -> dict[str, int]:
        """`bytes`, `max_bytes`, `entries` and `evictions`."""
        with self._lock:
            return {
                "bytes": int(self._chains.currsize),
                "max_bytes": self._max_bytes,
                "entries": len(self._chains),
                "evictions": self._evictions,
            }

    def __repr__(self) -> str:
        """Show the fill level."""
        usage = self.usage()
        return f"MemoryHistoryCache({usage['bytes']:,} of {self._max_bytes:,} bytes)"

    def _drop(self, key: ChainKey, chain: Chain) -> None:
        chain.closed = True
        with contextlib.suppress(ChainBusy), chain.lock:
            chain.close()
        with self._lock:
            if self._chains.get(key) is chain:
                del self._chains[key]
            self._forget(key, chain)

    def _evicted(self, key: ChainKey, chain: Chain) -> None:
        self._evictions += 1
        self._forget(key, chain)
        # Its lock may be held by a reader; closing is a flag that reader checks
        chain.closed = True

    def _forget(self, key: ChainKey, chain: Chain) -> None:
        self._dropped = now()
        thread = self._threads.get((key.prefix, key.thread_id))
        if thread is not None and thread.get(key) is chain:
            del thread[key]
            if not thread:
                del self._threads[key.prefix, key.thread_id]
