"""What a wrapper knows: its saver, the saver's traits, and what it shares with its clones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from deerflow_saver._arguments import configurable
from deerflow_saver._failures import FailedWrites
from deerflow_saver._plan import Operations
from deerflow_saver._probe import Traits, traits_of
from deerflow_saver._recent import Recent
from deerflow_saver._serde import pack, plain_serde, token_of
from deerflow_saver._shadows import shadows_of, stores_as_given
from deerflow_saver._taping import Tape, run
from deerflow_saver.cache.base import ChainKey, HistoryCache
from deerflow_saver.events import CacheInfo, OnEvent
from deerflow_saver.fixes import failed_writes_kept_checkpoint
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.facts import Packed
from deerflow_saver.history.isolation import Isolation, Serde
from deerflow_saver.history.minting import now
from deerflow_saver.history.reader import Flights, always_delta
from deerflow_saver.walks.paths import RememberedPaths
from deerflow_saver.walks.walker import Walker

__all__ = ["Core", "Shared"]

logger = logging.getLogger("deerflow_saver")

_MAX_CHANNELS = 256
_HEADS = 2048


class _Knowledge:
    """Which channels are delta, for every wrapper that keeps its chains in one place."""

    def __init__(self) -> None:
        self.since: Mapping[str, int] = {}
        """Replaced, never changed."""
        self._lock = threading.Lock()
        self._began = now()
        self._passed = set[str]()
        """Channels that were not known when a write of theirs passed."""

    def track(self, channels: Collection[str]) -> None:
        """Take note of delta channels, recorded from now on, or since before their first write."""
        if self.since.keys() >= set(channels):
            return
        with self._lock:
            new = [channel for channel in channels if channel not in self.since]
            if len(self.since) + len(new) <= _MAX_CHANNELS:
                began, later = self._began, now()
                since = {channel: later if channel in self._passed else began for channel in new}
                self.since = {**self.since, **since}

    def passes(self, channels: Collection[str]) -> None:
        """Writes begin: those of channels that are not known are not going to be recorded."""
        passed = self._passed
        new = [name for name in channels if name not in self.since and name not in passed]
        if new:
            with self._lock:
                if len(self._passed) + len(new) > _MAX_CHANNELS:
                    # Not known any more, not even by who is looking into the set just now
                    self._began, self._passed = now(), set()
                self._passed.update(new)


_known: WeakKeyDictionary[Any, dict[str, _Knowledge]] = WeakKeyDictionary()


def _knowledge_of(cache: HistoryCache, prefix: str) -> _Knowledge:
    """The knowledge of all wrappers with this cache and prefix: they share chains as well."""
    return _known.setdefault(cache, {}).setdefault(prefix, _Knowledge())


class Shared:
    """What a wrapper shares with its clones: the cache, the counters, the misses under way."""

    def __init__(
        self,
        cache: HistoryCache,
        prefix: str,
        isolation: Isolation,
        on_event: OnEvent | None,
        fixes: frozenset[str] = frozenset(),
        home: Any = None,
    ) -> None:
        """Start with no knowledge of any channel."""
        self.cache = cache
        self.home = home
        """The database's place in a shared store; see `_sharing.Home`."""
        self.prefix = prefix
        self.isolation = isolation
        self.on_event = on_event
        self.fixes = fixes
        """Slugs of `deerflow_saver.fixes` that are on."""
        self.flights = Flights()
        self.paths = RememberedPaths()
        self.heads: Recent[ChainKey, tuple[str, frozenset[str]]] = Recent(_HEADS)
        """Ids of newest checkpoints, and their channels that were delta from the first step on."""
        self.lost = FailedWrites(failed_writes_kept_checkpoint.here)
        self._knowledge = _knowledge_of(cache, prefix)
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def count(self, *names: str, by: int = 1) -> None:
        """Add to counters of `CacheInfo`."""
        with self._lock:
            for name in names:
                self._counts[name] = self._counts.get(name, 0) + by

    def info(self) -> CacheInfo:
        """The counters, and the cache's usage."""
        with self._lock:
            return CacheInfo(**self._counts, **self.cache.usage())

    def failed(self) -> None:
        """Count and log a failure of the cache itself; call inside an exception handler."""
        self.count("errors")
        logger.exception(  # noqa: LOG004 - said above
            "the history cache failed; the wrapped saver answers"
        )

    @property
    def since(self) -> Mapping[str, int]:
        """Names that proved to be delta channels, and since when all threads record them."""
        return self._knowledge.since

    def track(self, channels: Collection[str]) -> None:
        """Take note of delta channels."""
        self._knowledge.track(channels)

    def passes(self, channels: Collection[str]) -> None:
        """Take note of channels whose writes begin to pass."""
        self._knowledge.passes(channels)

    def forget_thread(self, thread_id: Any) -> None:
        """Drop a thread; savers that turn ids into strings mean the string's thread too."""
        self.count("forgets")
        for name in {thread_id, str(thread_id)}:
            self.cache.purge_thread(self.prefix, name)

    def forget_all(self) -> None:
        """Drop every thread of this database."""
        self.count("forgets")
        self.cache.purge(self.prefix)


class Core:
    """One wrapped saver and the chains that belong to it."""

    def __init__(self, inner: Any, shared: Shared) -> None:
        """Look at what `inner` does."""
        self.inner = inner
        self.shared = shared
        self.traits: Traits = traits_of(inner)
        self.walker = Walker(inner, shared.fixes, shared.paths)
        answered = failed_writes_kept_checkpoint.DEFECT.slug in shared.fixes
        self.lost: FailedWrites | None = shared.lost if answered else None
        self._decoding: tuple[Any, Serde, Any] | None = None
        self.storage = self.traits.kind == "storage"
        """Whether the saver is one whose rules are known (see `_probe`)."""
        self._shadows = shadows_of(type(inner)) if self.storage else None
        self.sharing: Any = None
        """Dealings with a store that other workers use too, if there is one."""
        self.operations: tuple[Operations, Operations] = ({"inner": self.call},) * 2
        """What plans without a guard may request, on both faces."""

    def call(self, call: tuple[Any, ...]) -> Any:
        """Call the wrapped saver, as `_taping.run` does."""
        return run(self.inner, call)

    def tape(self) -> Tape | None:
        """A tape for one call of the saver; None if its calls cannot be taped."""
        return None if self._shadows is None else Tape(type(self.inner), self._shadows)

    def packed(self, values: Iterable[Any]) -> list[Packed] | None:
        """What the saver would store of these values; None if that is not known."""
        if not self.storage or not stores_as_given(type(self.inner)):
            return None
        _, serde = self.decoding()
        packed = [pack(serde, value) for value in values]
        return None if None in packed else cast("list[Packed]", packed)

    def decoding(self) -> tuple[Any, Serde]:
        """How the saver decodes: a token equal for equal ways, and the serialiser."""
        serde = self.inner.serde
        known = self._decoding
        if known is None or known[2] is not serde:
            known = self._decoding = (token_of(serde), plain_serde(serde), serde)
        return known[0], known[1]

    def key(self, config: Any) -> ChainKey | None:
        """The chain a config belongs to; None if its thread may not be cached.

        Thread ids that are not strings stay uncached: savers differ in whether 1 and "1"
        are the same thread.
        """
        names = configurable(config)
        thread_id, ns = names.get("thread_id"), names.get("checkpoint_ns", "")
        if type(thread_id) is not str or type(ns) is not str:
            return None
        return ChainKey(self.shared.prefix, thread_id, ns)

    def resolved_key(self, config: Any, row: Any) -> ChainKey | None:
        """The chain of a row that a wrapping saver resolved, scoped by whatever it used."""
        key = self.key(config)
        if key is None or row is None:
            return None
        scope = {
            name: f"{type(value).__name__}:{value}"
            for name, value in configurable(row.config).items()
            if name not in {"checkpoint_id", "checkpoint_map"}
            and not name.startswith("__")
            and isinstance(value, str | int | float | bool)
        }
        return key._replace(scope=tuple(sorted(scope.items())))

    def chain(self, key: ChainKey) -> Chain:
        """The chain of `key`, made if there is none."""
        return self.shared.cache.chain(key, self._new_chain)

    def _new_chain(self) -> Chain:
        # A chain this one replaces may have taken records with it
        dropped = self.shared.cache.dropped
        return Chain(
            {channel: max(since, dropped) for channel, since in self.shared.since.items()},
            ordered=self.traits.ordered or self.walker.paths is not None,
            by_task=self.traits.by_task,
            seeds_by_version=self.traits.seeds_by_version,
        )

    def saw_head(self, row: Any) -> None:
        """Note a row that was read as the newest of its thread and namespace."""
        key = self.key(row.config) if self.walker.heads_help else None
        if key is not None:
            self.shared.heads.keep(key, (row.checkpoint["id"], always_delta(row.metadata)))

    def at_head(self, config: Any) -> frozenset[str] | None:
        """If the config's checkpoint was read as its thread's head, what was delta from the start.

        None if it was not, or if that is not known.
        """
        cid, key = configurable(config).get("checkpoint_id"), self.key(config)
        known = self.shared.heads.get(key) if key is not None else None
        return known[1] if known is not None and known[0] == cid else None

    def existing(self, config: Any) -> tuple[ChainKey, Chain] | None:
        """The chain of a config if there is one; none is made."""
        key = self.key(config)
        if key is None:
            return None
        for found, chain in self.shared.cache.chains(key.prefix, key.thread_id):
            if found == key:
                return found, chain
        return None

    def to_write(self, config: Any) -> Sequence[tuple[ChainKey, Chain]]:
        """Every chain a write may concern.

        For a storage saver that is one, made if delta channels are known. A wrapping saver
        decides for itself which rows a config means, so all chains of the thread and
        namespace are meant.
        """
        shared = self.shared
        key = self.key(config)
        if key is None:
            thread_id = configurable(config).get("thread_id")
            if thread_id is not None:
                shared.forget_thread(thread_id)
            return ()
        if not shared.cache.enabled:
            return ()
        if not shared.since:
            found = self.existing(config)
            return (found,) if found is not None else ()
        if self.storage:
            return ((key, self.chain(key)),)
        return [
            (found, chain)
            for found, chain in shared.cache.chains(key.prefix, key.thread_id)
            if found.checkpoint_ns == key.checkpoint_ns
        ]

    def measure(self, key: ChainKey, chain: Chain) -> None:
        """Let the cache take note of a chain's size."""
        try:
            self.shared.cache.measure(key, chain)
        except Exception:  # noqa: BLE001 - accounting must not fail the call it follows
            self.shared.failed()

    def rooted(self, key: ChainKey) -> bool:
        """Whether it is proven that no parent row is missing in the thread and namespace."""
        try:
            ask = self.traits.rooted
            return ask is not None and ask(self.inner, key.thread_id, key.checkpoint_ns)
        except Exception:  # noqa: BLE001 - no proof, so nothing is kept
            return False

    async def arooted(self, key: ChainKey) -> bool:
        """`rooted` on the async face."""
        try:
            ask = self.traits.arooted
            return ask is not None and await ask(self.inner, key.thread_id, key.checkpoint_ns)
        except Exception:  # noqa: BLE001 - no proof, so nothing is kept
            return False
