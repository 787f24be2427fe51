"""Two tiers: memory, and behind it a store that other processes use as well.

A `SharedStore` answers requests of raw bytes on either face and never raises: whatever
goes wrong in it is an outage, which a circuit breaker keeps short, and costs speed only.
How a request is carried out is one plan (see `deerflow_saver._plan`) per kind of store.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.cache.breaker import Breaker
from deerflow_saver.cache.memory import DEFAULT_MAX_BYTES, MemoryHistoryCache

__all__ = ["Discard", "Found", "Look", "Purge", "SharedHistoryCache", "SharedStore", "Store"]

logger = logging.getLogger("deerflow_saver")

LIMIT = 4096
"""Records of one channel in one answer; whoever is further behind asks the wrapped saver."""


_SILENT = (
    "the shared history cache %s does not answer (%s: %s); the wrapped saver and this process's "
    "memory answer until it does"
)
_REFUSES = (
    "the shared history cache %s refuses to work (%s): %s. Until then the wrapped saver answers "
    "every read, nothing is shared, and other workers do not hear what is forgotten here"
)


class Look(NamedTuple):
    """The thread's epoch, and per channel the records from `start` down to an anchor or seed."""

    prefix: str
    thread_id: str
    ns: str = ""
    start: str = ""
    channels: Sequence[str] = ()
    anchors: Sequence[str] = ()


class Found(NamedTuple):
    """Answer to `Look`."""

    epoch: str | None
    """None: there is none, and none could be made."""
    paths: Sequence[Sequence[tuple[bytes, bytes]]] = ()
    """Per channel (checkpoint id, value), from the start on; the start's may be a link."""
    seeds: Sequence[bytes | None] = ()
    """Per channel the newest seed, where the path ends at a known one."""


class Store(NamedTuple):
    """Keep `fields` and remove `gone`, if the epoch is still this one. Answered by whether."""

    prefix: str
    thread_id: str
    epoch: str
    fields: Sequence[tuple[str, bytes]]
    gone: Sequence[str]


class Discard(NamedTuple):
    """Remove fields that could not be read."""

    prefix: str
    thread_id: str
    fields: Sequence[str]


class Purge(NamedTuple):
    """End the epoch of a thread and remove it; with None, end that of every thread."""

    prefix: str
    thread_id: str | None


Request = Look | Store | Discard | Purge


class SharedStore(ABC):
    """What processes share, behind a circuit breaker.

    Args:
        name: how log lines call it, without credentials.
        rest: seconds an unreachable store is left alone.
        secret: what all workers know and the store does not, for keyed digests; may be empty.

    """

    def __init__(self, name: str, rest: float, secret: bytes = b"") -> None:
        self.name = name
        self.secret = secret
        self.breaker = Breaker(rest)
        self._owed: dict[str, object] = {}
        """Databases to be forgotten at the next contact, each with its latest reason."""
        self._lock = threading.Lock()
        self._refused = False
        """Whether the last failure was a refusal, which no rest ends."""

    # -- what a kind of store defines --------------------------------------------------------

    @abstractmethod
    def plan(self, request: Request) -> Plan[Any]:
        """How a request is carried out."""

    @property
    @abstractmethod
    def calls(self) -> Mapping[str, Callable[[Any], Any]]:
        """The plan's operations, blocking."""

    @property
    @abstractmethod
    def acalls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """The plan's operations, awaited."""

    @abstractmethod
    def close(self) -> None:
        """Close connections of the blocking face."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close connections of both faces."""

    def refusal(self, error: Exception) -> str | None:  # noqa: ARG002 - some stores can tell
        """What is to be changed, if the store works and will not do what it is asked until then."""
        return None

    # -- both faces --------------------------------------------------------------------------

    def run(self, request: Request) -> Any:
        """Carry out a request; None in an outage.

        A store that refuses gives an answer: that there is no epoch, so that nothing is served
        from a memory which would never hear of purges.
        """
        if not self.breaker.allows():
            return self._unasked(request)
        try:
            answer = drive(self._paid(request), self.calls)
        except Exception as error:  # noqa: BLE001 - any failure of a cache is an outage
            return self._failed(request, error)
        self._succeeded()
        return answer

    async def arun(self, request: Request) -> Any:
        """`run` on the async face."""
        if not self.breaker.allows():
            return self._unasked(request)
        try:
            answer = await adrive(self._paid(request), self.acalls)
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(request, error)
        except BaseException:  # cancelled: nobody knows how far it came
            self.owe(request)
            raise
        self._succeeded()
        return answer

    def _paid(self, request: Request) -> Plan[Any]:
        """The request, after what is owed to its database."""
        prefix = request.prefix
        owed = self._owed.get(prefix)
        if owed is not None:
            yield from self.plan(Purge(prefix, None))
            with self._lock:
                if self._owed.get(prefix) is owed:
                    del self._owed[prefix]
        return (yield from self.plan(request))

    def owe(self, request: Request) -> None:
        """Remember a purge that did not happen: the next contact forgets the whole database."""
        if isinstance(request, Purge):
            with self._lock:
                self._owed[request.prefix] = object()

    def _unasked(self, request: Request) -> Found | None:
        """The answer to a request that was not carried out."""
        self.owe(request)
        return Found(None) if self._refused and isinstance(request, Look) else None

    def _failed(self, request: Request, error: Exception) -> Found | None:
        if isinstance(error, UnicodeEncodeError):
            self.owe(request)
            return None  # a name that is no text, which no store was asked about
        advice = self.refusal(error)
        began = self.breaker.failed() or (advice is not None and not self._refused)
        self._refused = advice is not None
        if began and advice is not None:
            logger.error(_REFUSES, self.name, error, advice)
        elif began:
            logger.warning(_SILENT, self.name, type(error).__name__, error)
        return self._unasked(request)

    def _succeeded(self) -> None:
        if self.breaker.succeeded():
            self._refused = False
            logger.info("the shared history cache %s answers again", self.name)


class SharedHistoryCache(MemoryHistoryCache):
    """Histories in this process's memory, and records in a store that other workers use too.

    Args:
        store: the second tier.
        max_bytes: the budget of the first tier; 0 disables both.

    """

    def __init__(self, store: SharedStore, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        super().__init__(max_bytes)
        self.store = store

    def usage(self) -> dict[str, int]:
        """The memory's numbers, and how many `outages` of the store there were."""
        return {**super().usage(), "outages": self.store.breaker.outages}

    def close(self) -> None:
        """Close the connections of the blocking face."""
        self.store.close()

    async def aclose(self) -> None:
        """Close all connections, those of this event loop included."""
        await self.store.aclose()

    def __enter__(self) -> Self:
        """The cache itself; leaving closes its connections."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """The cache itself; leaving closes its connections."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    def __repr__(self) -> str:
        """Name the store and show the fill level of the memory."""
        return f"{type(self).__name__}({self.store.name}, {super().__repr__()})"
