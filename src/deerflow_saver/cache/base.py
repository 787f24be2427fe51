"""What a history cache owes its users, and the key under which a thread is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from deerflow_saver.history.chain import Chain

__all__ = ["CACHE_METHODS", "ChainKey", "HistoryCache"]


class ChainKey(NamedTuple):
    """Where a chain belongs.

    `prefix` names the database, `thread_id` and `checkpoint_ns` the history in it, and
    `scope` whatever else the wrapped saver resolved (a tenant, say) that may decide which
    rows are meant; empty where the saver reads nothing else.
    """

    prefix: str
    thread_id: str
    checkpoint_ns: str
    scope: tuple[tuple[str, str], ...] = ()


@runtime_checkable
class HistoryCache(Protocol):
    """Keeps chains, within a budget.

    Obligations:

    - An entry can disappear at any time; a chain that disappears is closed first, so that
      a reader still holding it can neither serve from it nor bring it back.
    - `purge_thread` returns only when no chain of the thread is left, whatever its
      namespace or scope; thread ids are compared as they are, never as patterns.
    - No method raises because of what is stored, and none performs I/O.
    - Every method may be called from any thread.
    """

    @property
    def enabled(self) -> bool:
        """False when the budget is zero: the wrapper then passes everything through."""
        ...

    @property
    def dropped(self) -> int:
        """A timestamp (see `history.minting`) since which no chain was dropped."""
        ...

    def chain(self, key: ChainKey, make: Callable[[], Chain]) -> Chain:
        """The chain of `key`, made by `make` if there is none, marked as just used."""
        ...

    def chains(self, prefix: str, thread_id: str) -> Iterable[tuple[ChainKey, Chain]]:
        """All chains of a thread at this moment."""
        ...

    def measure(self, key: ChainKey, chain: Chain) -> None:
        """Take note of the chain's size now, and evict what no longer fits."""
        ...

    def purge_thread(self, prefix: str, thread_id: str) -> None:
        """Close and drop every chain of a thread."""
        ...

    def purge(self, prefix: str) -> None:
        """Close and drop every chain of a database."""
        ...

    def usage(self) -> dict[str, int]:
        """`bytes`, `max_bytes`, `entries` and `evictions` of the cache as a whole."""
        ...


CACHE_METHODS = (
    "chain",
    "chains",
    "measure",
    "purge_thread",
    "purge",
    "usage",
    "enabled",
    "dropped",
)
