"""`CachedHistorySaver`: any LangGraph saver, the same answers, cached delta histories.

The wrapper passes every call to the wrapped saver and learns from what passes through:
links between checkpoints, stored snapshots, own writes. Delta histories are answered from
what was learnt where that gives what the wrapped saver would give (see `history.chain`).
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from functools import partial
from typing import Any, NoReturn, Self, cast

import wrapt

from deerflow_saver._arguments import argument, history_arguments, writes_kept
from deerflow_saver._core import Core, Shared
from deerflow_saver._delegate import proxy_class
from deerflow_saver._plan import adrive, drive
from deerflow_saver._probe import refuse_unsupported
from deerflow_saver._reads import Listing, read_history, read_row
from deerflow_saver._sharing import Home, Sharing
from deerflow_saver._sharing_plans import sharing_forgets, sharing_put, sharing_writes
from deerflow_saver._writes import (
    announce,
    forget_all,
    forget_threads,
    store_checkpoint,
    store_writes,
)
from deerflow_saver.cache.base import CACHE_METHODS, HistoryCache
from deerflow_saver.cache.memory import MemoryHistoryCache
from deerflow_saver.cache.shared import SharedHistoryCache
from deerflow_saver.errors import InvalidConfigError, UnsupportedSaverError
from deerflow_saver.events import CacheInfo, GuardEvent, OnEvent, emit
from deerflow_saver.fixes import Fixes, for_saver, is_on
from deerflow_saver.guard.driver import Guarded
from deerflow_saver.guard.guard import Guard
from deerflow_saver.guard.locks import locks_of
from deerflow_saver.guard.making import guard_of
from deerflow_saver.guard.plans import forgetting, guarded_put, guarded_read, guarded_writes
from deerflow_saver.guard.policy import Policy, allowed, check_policy, may_be_delta
from deerflow_saver.guard.state import GuardState
from deerflow_saver.history.isolation import ISOLATIONS, Isolation
from deerflow_saver.history.sharing import Forget
from deerflow_saver.walks.asking import aask, ask, family_of
from deerflow_saver.walks.pruning import keeping_histories

__all__ = ["CachedHistorySaver"]


class CachedHistorySaver(wrapt.BaseObjectProxy[Any]):
    """Wrap `inner` so that reads of delta histories are served from a cache.

    ```python
    saver = CachedHistorySaver(PostgresSaver(conn))
    graph = builder.compile(checkpointer=saver)
    ```

    The wrapper is indistinguishable from the saver it wraps: `isinstance`, attributes,
    optional methods, context managers. Every read gives what the wrapped saver would give
    at that moment.

    Args:
        inner: any `BaseCheckpointSaver` instance that keeps its checkpoints' parents.
        cache: where histories are kept; by default a `MemoryHistoryCache` of 64 MiB of
            its own. One cache may serve several wrappers.
        key_prefix: name of the database inside a shared cache; by default one no other
            wrapper has. Give two wrappers the same prefix only if they open the same
            database.
        isolation: `"safe"` (default: callers may change anything they are given),
            `"copy"` (fresh objects at every read), or `"shared"` (one set of objects for
            all readers; only for code that never changes state in place).
        on_event: called with a `HistoryEvent` for every channel of every read, and with a
            `GuardEvent` for every write the guard refuses or lets through for once.
        guard: what happens to a write that would fork a thread with delta channels:
            `"refuse"` (default), `"refuse-all"` (in threads without delta channels too),
            `"observe"` (report and store), or `"off"`.
        strict: refuse late writes of another run on an older checkpoint as well, whatever
            their channels.
        fixes: defects of the installed LangGraph to be mended (see `deerflow_saver.fixes`):
            `"auto"` (default: those this saver and guard need), `"off"`, or an iterable of
            slugs. Some are mended by patching LangGraph, in the whole process.

    Raises:
        UnsupportedSaverError: not a saver, already wrapped, or one with which delta
            channels lose data.
        InvalidConfigError: another argument has the wrong type or value.

    """

    _self_core: Core
    _self_guard: Guarded | None

    def __new__(cls, inner: Any, *_args: Any, fixes: Any = "auto", **_kwargs: Any) -> Self:
        """Make an instance of the proxy class that fits `inner`'s type."""
        if issubclass(type(inner), CachedHistorySaver):
            msg = f"{inner!r} is wrapped already; use it as it is, or wrap its .inner"
            raise UnsupportedSaverError(msg)
        refuse_unsupported(inner)
        paths = is_on("star-args-wrapper", fixes)
        made = proxy_class(cls, type(inner), _METHODS, name_paths=paths)
        return cast("Self", wrapt.BaseObjectProxy.__new__(made))

    def __init__(
        self,
        inner: Any,
        cache: HistoryCache | None = None,
        *,
        key_prefix: str | None = None,
        isolation: Isolation = "safe",
        on_event: OnEvent | None = None,
        guard: Policy = "refuse",
        strict: bool = False,
        fixes: Fixes = "auto",
    ) -> None:
        """See the class."""
        super().__init__(inner)
        if cache is None:
            cache = MemoryHistoryCache()
        _check_options(cache, key_prefix, isolation, on_event)
        check_policy(guard, strict)
        on = for_saver(inner, fixes, guard=guard)
        home = Home(key_prefix)
        shared = Shared(cache, key_prefix or uuid.uuid4().hex, isolation, on_event, on, home)
        self._self_core = Core(inner, shared)
        self._self_guard = _guarded(self._self_core, guard, strict=strict)

    def _self_around(self, inner: Any, shared: Shared | None = None) -> CachedHistorySaver:
        """A wrapper round another inner saver, with this one's cache and counters by default."""
        user_class = cast("type[CachedHistorySaver]", type(self).__mro__[1])
        shared_now = shared or self._self_core.shared
        twin = user_class.__new__(user_class, inner, fixes=shared_now.fixes)
        wrapt.BaseObjectProxy.__init__(twin, inner)
        core = Core(inner, shared_now)
        old = self._self_guard
        state = None if shared is not None or old is None else old.guard.state
        twin._self_core = core  # noqa: SLF001
        policy: Policy = "off" if old is None else old.guard.policy
        strict = old is not None and old.guard.strict
        twin._self_guard = _guarded(core, policy, strict=strict, state=state)  # noqa: SLF001
        return twin

    # -- the wrapper's own face --------------------------------------------------------------

    @property
    def inner(self) -> Any:
        """The wrapped saver."""
        return self.__wrapped__

    def cache_info(self) -> CacheInfo:
        """Counters of this wrapper and its clones, and the size of the cache."""
        return self._self_core.shared.info()

    @property
    def guard(self) -> Guard | None:
        """The guard: its `policy`, and how far its `fence` reaches; None if it is off."""
        return self._self_guard.guard if self._self_guard else None

    def cache_clear(self) -> None:
        """Forget every history of this wrapper's database, in all workers that share a cache."""
        core = self._self_core
        core.shared.forget_all()
        if core.sharing is not None:
            core.sharing.call(Forget(None))

    def purge_thread(self, thread_id: str) -> None:
        """Forget a thread, after a job rewrote or deleted its rows behind the saver's back."""
        core = self._self_core
        core.shared.forget_thread(thread_id)
        if core.sharing is not None:
            core.sharing.call(Forget(str(thread_id)))

    async def apurge_thread(self, thread_id: str) -> None:
        """`purge_thread` for the async face."""
        core = self._self_core
        core.shared.forget_thread(thread_id)
        if core.sharing is not None:
            await core.sharing.acall(Forget(str(thread_id)))

    def __repr__(self) -> str:
        """Name both savers."""
        return f"<CachedHistorySaver round {self.__wrapped__!r}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """The same in an f-string."""
        return format(str(self), spec)

    def __copy__(self) -> CachedHistorySaver:
        """A wrapper round a shallow copy of the saver; cache and counters are shared.

        The saver is copied because LangGraph sets attributes (`serde`) on copies.
        """
        return self._self_around(copy.copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedHistorySaver:
        """A wrapper round a deep copy of the saver, with a cache of its own."""
        old = self._self_core.shared
        cache, prefix = MemoryHistoryCache(), uuid.uuid4().hex
        shared = Shared(cache, prefix, old.isolation, old.on_event, old.fixes, Home(None))
        return self._self_around(copy.deepcopy(self.__wrapped__, memo), shared)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: a live cache and a live connection have no meaning elsewhere."""
        msg = (
            "a CachedHistorySaver cannot be pickled: it holds a live cache and its saver's "
            "connection. Build the saver in the other process and wrap it there."
        )
        raise TypeError(msg)

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        """See `__reduce__`."""
        self.__reduce__()

    def __enter__(self) -> Self:
        """Enter the wrapped saver; the wrapper is what `with ... as` gives."""
        _special(self.__wrapped__, "__enter__")()
        return self

    def __exit__(self, *exc: object) -> Any:
        """Leave the wrapped saver."""
        return _special(self.__wrapped__, "__exit__")(*exc)

    async def __aenter__(self) -> Self:
        """Enter the wrapped saver; the wrapper is what `async with ... as` gives."""
        await _special(self.__wrapped__, "__aenter__")()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        """Leave the wrapped saver."""
        return await _special(self.__wrapped__, "__aexit__")(*exc)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> CachedHistorySaver:
        """A wrapper round the saver's clone with that msgpack allowlist; the cache is shared.

        What was decoded under one allowlist is never served under another.
        """
        clone = self.__wrapped__.with_allowlist(extra_allowlist)
        return self if clone is self.__wrapped__ else self._self_around(clone)


# The saver's own methods, as the generated class gets them where the wrapped class has them.


def _get_tuple(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
    core, guarded = self._self_core, self._self_guard
    plan = read_row(core, "get_tuple", args, kwargs)
    if guarded is None:
        return drive(plan, {"inner": core.call})
    return drive(guarded_read(guarded.guard, args, kwargs, plan), guarded.sync)


async def _aget_tuple(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
    core, guarded = self._self_core, self._self_guard
    plan = read_row(core, "aget_tuple", args, kwargs)
    if guarded is None:
        return await adrive(plan, {"inner": core.call})
    return await adrive(guarded_read(guarded.guard, args, kwargs, plan), guarded.asynchronous)


def _list(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Iterator[Any]:
    listing = Listing(self._self_core, args, kwargs)
    for row in self._self_core.walker.list(args, kwargs):
        listing.passes(row)
        yield row


async def _alist(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    listing = Listing(self._self_core, args, kwargs)
    async for row in self._self_core.walker.alist(args, kwargs):
        listing.passes(row)
        yield row


def _get_delta_channel_history(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
    core = self._self_core
    config, channels = history_arguments(args, kwargs)
    calls: dict[str, Callable[[Any], Any]] = {
        "get_tuple": core.walker.get_tuple,
        "history": lambda names: core.walker.walk(config, names, head=core.at_head(config)),
        "rooted": core.rooted,
        "wait": lambda flight: flight.landed.result(),
        **core.operations[0],
    }
    return drive(read_history(core, "sync", config, channels), calls)


async def _aget_delta_channel_history(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
    core = self._self_core
    config, channels = history_arguments(args, kwargs)
    calls: dict[str, Callable[[Any], Any]] = {
        "get_tuple": core.walker.aget_tuple,
        "history": lambda names: core.walker.awalk(config, names, head=core.at_head(config)),
        "rooted": core.arooted,
        **core.operations[1],
        "wait": lambda flight: asyncio.shield(asyncio.wrap_future(flight.landed)),
    }
    return await adrive(read_history(core, "async", config, channels), calls)


def _writing(
    name: str, store: Callable[..., Any], guard: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    """Both faces of a call that stores: the plan `store`, behind the plan `guard`."""
    share = sharing_put if name == "put" else sharing_writes

    def plan(self: CachedHistorySaver, face: str, args: Any, kwargs: Any) -> Any:
        core, guarded = self._self_core, self._self_guard
        if name == "put_writes":
            args, kwargs = writes_kept(args, kwargs)
        if guarded is None:
            made = store(core, face, args, kwargs)
        else:
            if name == "put":
                announce(core, args, kwargs)
            call = (face, args, kwargs)
            made = guard(guarded.guard, call, partial(store, core, face))
        return made if core.sharing is None else share(core, args, kwargs, made)

    def method(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
        guarded = self._self_guard
        if guarded is not None and guarded.guard.bridged:
            call = amethod(self, *args, **kwargs)
            return asyncio.run_coroutine_threadsafe(call, self.__wrapped__.loop).result()
        calls = self._self_core.operations[0] if guarded is None else guarded.sync
        return drive(plan(self, name, args, kwargs), calls)

    async def amethod(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
        guarded = self._self_guard
        calls = self._self_core.operations[1] if guarded is None else guarded.asynchronous
        return await adrive(plan(self, f"a{name}", args, kwargs), calls)

    return {name: method, f"a{name}": amethod}


def _deleting(
    name: str, threads: Callable[[Any, Any], list[Any]] | None
) -> dict[str, Callable[..., Any]]:
    """Both faces of a call that deletes rows; `threads` names those it touches, None all."""

    def plan(self: CachedHistorySaver, face: str, args: Any, kwargs: Any) -> Any:
        call = (face, args, kwargs)
        core, guarded = self._self_core, self._self_guard
        touched = None if threads is None else threads(args, kwargs)
        plan = forget_all(core, call) if touched is None else forget_threads(core, call, touched)
        if name == "prune" and "prune-of-delta-thread" in core.shared.fixes:
            plan = keeping_histories(core.inner, core.shared.since, args, kwargs, plan)
        plan = plan if guarded is None else forgetting(guarded.guard, touched, plan)
        return plan if core.sharing is None else sharing_forgets(touched, plan)

    def method(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
        core = self._self_core
        calls = {"ask": lambda statement: ask(core.inner, statement), **core.operations[0]}
        return drive(plan(self, name, args, kwargs), calls)

    async def amethod(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
        core = self._self_core
        calls = {"ask": lambda statement: aask(core.inner, statement), **core.operations[1]}
        return await adrive(plan(self, f"a{name}", args, kwargs), calls)

    return {name: method, f"a{name}": amethod}


_METHODS: dict[str, Callable[..., Any]] = {
    "get_tuple": _get_tuple,
    "aget_tuple": _aget_tuple,
    "list": _list,
    "alist": _alist,
    **_writing("put", store_checkpoint, guarded_put),
    **_writing("put_writes", store_writes, guarded_writes),
    "get_delta_channel_history": _get_delta_channel_history,
    "aget_delta_channel_history": _aget_delta_channel_history,
    **_deleting("delete_thread", lambda args, kwargs: [argument("thread_id", 0, args, kwargs)]),
    **_deleting("prune", lambda args, kwargs: list(argument("thread_ids", 0, args, kwargs) or ())),
    **_deleting(
        "copy_thread", lambda args, kwargs: [argument("target_thread_id", 1, args, kwargs)]
    ),
    **_deleting("delete_for_runs", None),
}


def _guarded(
    core: Core, policy: Policy, *, strict: bool, state: GuardState | None = None
) -> Guarded | None:
    """The guard of a wrapper, with the memory of the one it was cloned from."""
    shared = core.shared
    if policy == "off":
        _share(core, None)
        return None

    def report(event: GuardEvent) -> None:
        shared.count("refused" if event.outcome == "refused" else "observed")
        emit(shared.on_event, event)

    state = state or GuardState(locks_of(core.inner))
    guard = guard_of(core.inner, state, report, policy, storage=core.storage, strict=strict)
    _share(core, guard)
    return Guarded(guard, core.operations)


def _share(core: Core, guard: Guard | None) -> None:
    """Let the saver deal with a shared store, if there is one and the database can be named."""
    cache, home = core.shared.cache, core.shared.home
    if not isinstance(cache, SharedHistoryCache) or not (core.storage or home.identity):
        return
    core.sharing = sharing = Sharing(
        core,
        cache.store,
        home,
        fenced=guard is not None and _holds(guard),
        overridden=lambda names: allowed(names) is not None,
        may_be_delta=may_be_delta,
    )
    core.operations = (
        {**core.operations[0], "shared": sharing.call},
        {**core.operations[1], "shared": sharing.acall},
    )


def _holds(guard: Guard) -> bool:
    """Whether the guard keeps every worker from writing on what has children."""
    if guard.policy not in {"refuse", "refuse-all"}:
        return False
    return guard.fence == "transaction" or family_of(guard.saver, "put") == "memory"


def _special(saver: Any, name: str) -> Callable[..., Any]:
    method = getattr(type(saver), name, None)
    if method is None:
        msg = f"{type(saver).__name__!r} object does not support the context manager protocol"
        raise TypeError(msg)
    return cast("Callable[..., Any]", method.__get__(saver))


def _check_options(cache: Any, key_prefix: Any, isolation: Any, on_event: Any) -> None:
    if isinstance(cache, type):
        msg = f"cache must be a HistoryCache, got a class; make one: {cache.__name__}()"
        raise InvalidConfigError(msg)
    if isinstance(cache, str):  # which may hold a password
        msg = "cache must be a HistoryCache, got a str; an address is opened by open_cache(address)"
        raise InvalidConfigError(msg)
    missing = [name for name in CACHE_METHODS if not hasattr(cache, name)]
    if missing:
        msg = f"cache must be a HistoryCache, got {type(cache).__name__} without {missing[0]!r}"
        raise InvalidConfigError(msg)
    if isolation not in ISOLATIONS:
        msg = f"isolation must be one of {', '.join(ISOLATIONS)}; got {isolation!r}"
        raise InvalidConfigError(msg)
    if key_prefix is not None and not isinstance(key_prefix, str):
        msg = f"key_prefix must be a str, got {type(key_prefix).__name__}"
        raise InvalidConfigError(msg)
    if on_event is not None and not callable(on_event):
        msg = f"on_event must be callable, got {type(on_event).__name__}"
        raise InvalidConfigError(msg)
