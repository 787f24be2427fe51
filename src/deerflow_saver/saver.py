"""`CachedHistorySaver`: any LangGraph saver, the same answers, cached delta histories.

The wrapper passes every call to the wrapped saver and learns from what passes through:
links between checkpoints, stored snapshots, own writes. Delta histories are answered from
what was learnt where that gives what the wrapped saver would give (see `history.chain`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import wrapt
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._delegate import proxy_class
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver._probe import refuse_unsupported, traits_of
from deerflow_saver.cache.base import CACHE_METHODS, ChainKey, HistoryCache
from deerflow_saver.cache.memory import MemoryHistoryCache
from deerflow_saver.errors import InvalidConfigError, UnsupportedSaverError
from deerflow_saver.events import CacheInfo, HistoryEvent, OnEvent, SeedKind, emit
from deerflow_saver.history.chain import ABSENT, HELD, Chain, Packed, Row, View, Writing
from deerflow_saver.history.isolation import ISOLATIONS, Isolation, Serde
from deerflow_saver.history.reader import Flights, Reading, Result, depth_of, read

__all__ = ["CachedHistorySaver"]

logger = logging.getLogger("deerflow_saver")

_MAX_CHANNELS = 256
_DISTRUST_SECONDS = 10.0
_UUID_EPOCH = 0x01B21DD213814000  # 1582-10-15 in units of 100 ns before 1970
_UUID_HEX = 32
_COUNTERS = "counters_since_delta_snapshot"


class _Shared:
    """What a wrapper shares with its clones: the cache, the counters, the misses under way."""

    def __init__(
        self, cache: HistoryCache, prefix: str, isolation: Isolation, on_event: OnEvent | None
    ) -> None:
        self.cache = cache
        self.prefix = prefix
        self.isolation = isolation
        self.on_event = on_event
        self.flights = Flights()
        self.channels: frozenset[str] = frozenset()
        self.since = time.time_ns() // 100 + _UUID_EPOCH
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of `CacheInfo`."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + by

    def info(self) -> CacheInfo:
        """The counters, and the cache's usage."""
        with self._lock:
            return CacheInfo(**self._counts, **self.cache.usage())

    def failed(self) -> None:
        """Count and log a failure of the cache itself; call inside an exception handler."""
        self.count("errors")
        logger.warning("the history cache failed; the wrapped saver answers", exc_info=True)

    def track(self, channels: Collection[str]) -> None:
        """Channels that proved to be delta channels are recorded in new threads from the start."""
        if not self.channels.issuperset(channels):
            joined = self.channels | frozenset(channels)
            if len(joined) <= _MAX_CHANNELS:
                self.channels = joined

    def minted_here(self, checkpoint_id: str) -> bool:
        """Whether the uuid6 id was made after this wrapper, so that no older row can have it."""
        digits = checkpoint_id.replace("-", "")
        if len(digits) != _UUID_HEX or digits[12] != "6":
            return False
        try:
            return (int(digits[:12], 16) << 12 | int(digits[13:16], 16)) > self.since
        except ValueError:
            return False


class CachedHistorySaver(wrapt.BaseObjectProxy):  # type: ignore[misc]
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
        on_event: called with a `HistoryEvent` for every channel of every read.

    Raises:
        UnsupportedSaverError: not a saver, already wrapped, or one with which delta
            channels lose data.
        InvalidConfigError: another argument has the wrong type or value.

    """

    def __new__(cls, inner: Any, *_args: Any, **_kwargs: Any) -> CachedHistorySaver:
        """Make an instance of the proxy class that fits `inner`'s type."""
        if issubclass(type(inner), CachedHistorySaver):
            msg = f"{inner!r} is wrapped already; use it as it is, or wrap its .inner"
            raise UnsupportedSaverError(msg)
        refuse_unsupported(inner)
        made = proxy_class(cls, type(inner), _METHODS)
        return cast("CachedHistorySaver", wrapt.BaseObjectProxy.__new__(made))

    def __init__(
        self,
        inner: Any,
        cache: HistoryCache | None = None,
        *,
        key_prefix: str | None = None,
        isolation: Isolation = "safe",
        on_event: OnEvent | None = None,
    ) -> None:
        """See the class."""
        super().__init__(inner)
        if cache is None:
            cache = MemoryHistoryCache()
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
        self._adopt(_Shared(cache, key_prefix or uuid.uuid4().hex, isolation, on_event))

    def _adopt(self, shared: _Shared) -> None:
        self._self_shared = shared
        self._self_traits = traits_of(self.__wrapped__)
        self._self_decoding: tuple[Any, Serde, Any] | None = None

    def _around(self, inner: Any) -> CachedHistorySaver:
        """A wrapper round another inner saver, with this one's cache and counters."""
        twin = CachedHistorySaver.__new__(_user_class(self), inner)
        wrapt.BaseObjectProxy.__init__(twin, inner)
        twin._adopt(self._self_shared)
        return twin

    # -- the wrapper's own face --------------------------------------------------------------

    @property
    def inner(self) -> Any:
        """The wrapped saver."""
        return self.__wrapped__

    def cache_info(self) -> CacheInfo:
        """Counters of this wrapper and its clones, and the size of the cache."""
        return self._self_shared.info()

    def cache_clear(self) -> None:
        """Forget every history of this wrapper's database."""
        self._self_shared.count("forgets")
        self._self_shared.cache.purge(self._self_shared.prefix)

    def purge_thread(self, thread_id: str) -> None:
        """Forget a thread, after a job rewrote or deleted its rows behind the saver's back."""
        self._self_shared.count("forgets")
        for name in {thread_id, str(thread_id)}:
            self._self_shared.cache.purge_thread(self._self_shared.prefix, name)

    async def apurge_thread(self, thread_id: str) -> None:
        """`purge_thread` for the async face."""
        self.purge_thread(thread_id)

    def __repr__(self) -> str:
        """Name both savers."""
        return f"<CachedHistorySaver round {self.__wrapped__!r}>"

    __str__ = __repr__

    def __copy__(self) -> CachedHistorySaver:
        """A wrapper round a shallow copy of the saver; cache and counters are shared.

        The saver is copied because LangGraph sets attributes (`serde`) on copies.
        """
        return self._around(copy.copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedHistorySaver:
        """A wrapper round a deep copy of the saver, with a cache of its own."""
        shared = self._self_shared
        return type(self)(
            copy.deepcopy(self.__wrapped__, memo),
            isolation=shared.isolation,
            on_event=shared.on_event,
        )

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

    def __enter__(self) -> CachedHistorySaver:
        """Enter the wrapped saver; the wrapper is what `with ... as` gives."""
        _special(self.__wrapped__, "__enter__")()
        return self

    def __exit__(self, *exc: object) -> Any:
        """Leave the wrapped saver."""
        return _special(self.__wrapped__, "__exit__")(*exc)

    async def __aenter__(self) -> CachedHistorySaver:
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
        return self if clone is self.__wrapped__ else self._around(clone)

    # -- reading ---------------------------------------------------------------------------

    def _get_tuple(self, *args: Any, **kwargs: Any) -> Any:
        plan = self._read_row("get_tuple", args, kwargs)
        return drive(plan, {"inner": self._call})

    async def _aget_tuple(self, *args: Any, **kwargs: Any) -> Any:
        plan = self._read_row("aget_tuple", args, kwargs)
        return await adrive(plan, {"inner": self._call})

    def _read_row(self, name: str, args: Any, kwargs: Any) -> Plan[Any]:
        found = None
        config = _argument("config", 0, args, kwargs)
        chain, serial, had_child = None, 0, False
        if self._self_traits.kind == "storage":
            _require_thread(name, config)
            found = self._existing(config)
        if found is not None:
            chain = found[1]
            with chain.lock:
                serial = chain.serial
                had_child = chain.has_child(_configurable(config).get("checkpoint_id") or "")
        row = yield "inner", (name, args, kwargs)
        if row is not None and self._self_traits.kind == "storage":
            self._see(config, row, chain, serial, had_child=had_child)
        return row

    def _list(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        serials: dict[ChainKey, int] = {}
        learns = self._starts_listing(args, kwargs, serials)
        for row in self.__wrapped__.list(*args, **kwargs):
            if learns:
                self._see_listed(row, serials)
            yield row

    async def _alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        serials: dict[ChainKey, int] = {}
        learns = self._starts_listing(args, kwargs, serials)
        async for row in self.__wrapped__.alist(*args, **kwargs):
            if learns:
                self._see_listed(row, serials)
            yield row

    def _starts_listing(self, args: Any, kwargs: Any, serials: dict[ChainKey, int]) -> bool:
        """Whether a listing teaches anything: one thread of a storage saver, seen before."""
        config = _argument("config", 0, args, kwargs)
        thread_id = _configurable(config).get("thread_id")
        if self._self_traits.kind != "storage" or type(thread_id) is not str:
            return False
        shared = self._self_shared
        for key, chain in shared.cache.chains(shared.prefix, thread_id):
            serials[key] = chain.serial
        return bool(serials)

    def _see_listed(self, row: Any, serials: Mapping[ChainKey, int]) -> None:
        found = self._existing(row.config)
        if found is None or found[0] not in serials:
            return
        chain = found[1]
        cid = row.checkpoint.get("id")
        self._see(row.config, row, chain, serials[found[0]], had_child=chain.has_child(cid))

    def _see(
        self, config: Any, row: Any, chain: Chain | None, serial: int, *, had_child: bool
    ) -> None:
        """Learn from a row that was read for the caller."""
        shared = self._self_shared
        try:
            counters = row.metadata.get(_COUNTERS)
            if isinstance(counters, Mapping):
                shared.track(counters.keys())
            if not shared.channels or not shared.cache.enabled:
                return
            key = self._key(config)
            if key is None:
                return
            chain = chain or shared.cache.chain(key, self._new_chain)
            parent = _configurable(row.parent_config).get("checkpoint_id")
            with chain.lock:
                if chain.closed or chain.serial != serial:
                    return
                chain.track(counters or ())
                chain.seen(
                    row.checkpoint["id"],
                    parent,
                    row.checkpoint.get("channel_values") or (),
                    row.pending_writes or (),
                    step=_step(row.metadata),
                    depth=depth_of(row.metadata),
                    had_child=had_child,
                )
        except Exception:  # noqa: BLE001 - the row was read: whatever fails here is ours
            shared.failed()

    def _get_delta_channel_history(self, *args: Any, **kwargs: Any) -> Any:
        if not self._caches(sync=True):
            return self._bypass("get_delta_channel_history", args, kwargs)
        config, channels = _history_arguments(args, kwargs)
        inner = self.__wrapped__
        calls: dict[str, Callable[[Any], Any]] = {
            "get_tuple": inner.get_tuple,
            "history": lambda names: inner.get_delta_channel_history(
                config=config, channels=list(names)
            ),
            "rooted": lambda key: self._rooted(key),
            "wait": lambda flight: flight.landed.result(),
        }
        return drive(self._history("sync", config, channels), calls)

    async def _aget_delta_channel_history(self, *args: Any, **kwargs: Any) -> Any:
        if not self._caches(sync=False):
            return await self._bypass("aget_delta_channel_history", args, kwargs)
        config, channels = _history_arguments(args, kwargs)
        inner = self.__wrapped__
        calls: dict[str, Callable[[Any], Any]] = {
            "get_tuple": inner.aget_tuple,
            "history": lambda names: inner.aget_delta_channel_history(
                config=config, channels=list(names)
            ),
            "rooted": self._arooted,
            "wait": lambda flight: asyncio.shield(asyncio.wrap_future(flight.landed)),
        }
        return await adrive(self._history("async", config, channels), calls)

    def _caches(self, *, sync: bool) -> bool:
        """Whether the cache may answer on this face, here and now."""
        traits = self._self_traits
        if not self._self_shared.cache.enabled or not (
            traits.sync if sync else traits.asynchronous
        ):
            return False
        # LangGraph's async savers refuse sync calls on their own loop; so must the wrapper
        return not (sync and traits.kind == "storage" and _on_own_loop(self.__wrapped__))

    def _bypass(self, name: str, args: Any, kwargs: Any) -> Any:
        self._self_shared.count("bypasses")
        return self._call((name, args, kwargs))

    def _history(self, face: str, config: Any, channels: tuple[str, ...]) -> Plan[Any]:
        """One read of a history; everything but the I/O."""
        shared = self._self_shared
        started = time.perf_counter() if shared.on_event is not None else 0.0
        if not channels:
            return {}
        key, row = self._key(config), None
        if self._self_traits.kind != "storage":
            row = yield "get_tuple", config
            key = self._resolved_key(config, row)
        cid = (
            row.checkpoint["id"] if row is not None else _configurable(config).get("checkpoint_id")
        )
        if key is None or type(cid) is not str or not cid:
            shared.count("bypasses")
            history = yield "history", channels
            return history
        shared.track(channels)
        reading = self._reading(face, key, config, cid, channels)

        def chain_of() -> Chain:
            chain = shared.cache.chain(key, self._new_chain)
            if row is not None:
                self._resolve(chain, row)
            return chain

        result: Result = yield from _with_proof(read(chain_of, reading, shared.flights), key)
        self._account(key, result)
        if shared.on_event is not None:
            self._report(result, time.perf_counter() - started)
        return result.history

    def _reading(
        self, face: str, key: ChainKey, config: Any, cid: str, channels: tuple[str, ...]
    ) -> Reading:
        traits, shared = self._self_traits, self._self_shared
        token, serde = self._decoding()

        def config_of(checkpoint_id: str) -> Any:
            configurable = {**_configurable(config), "checkpoint_id": checkpoint_id}
            return {**config, "configurable": configurable}

        # A sync reader waits only for flights of other threads, never for a task of a loop
        # that may be its own; one thread's flights are its own calls, nested.
        pilots = face if face == "async" else (face, None)
        return Reading(
            checkpoint_id=cid,
            channels=channels,
            token=token,
            make_view=lambda: View(serde, shared.isolation),
            config_of=config_of,
            on_error=shared.failed,
            crawl={"storage": "few", "tuples": "all", "opaque": "none"}[traits.kind],  # type: ignore[arg-type]
            prove_always=traits.prove_always,
            prove=traits.rooted is not None,
            flight_key=(pilots, key, cid, channels, token),
        )

    def _account(self, key: ChainKey, result: Result) -> None:
        shared = self._self_shared
        if result.outcome == "hit":
            shared.count("hits")
        else:
            shared.count("misses")
            shared.count("composed" if result.outcome == "composed" else "walks")
            if result.fetches:
                shared.count("fetches", result.fetches)
        self._measure(key)

    def _measure(self, key: ChainKey) -> None:
        shared = self._self_shared
        try:
            shared.cache.measure(key, shared.cache.chain(key, self._new_chain))
        except Exception:  # noqa: BLE001 - accounting must not fail a read
            shared.failed()

    def _report(self, result: Result, seconds: float) -> None:
        calls = result.fetches + (result.outcome == "walk")
        for channel, entry in result.history.items():
            kind: SeedKind = "root"
            if "seed" in entry:
                kind = "snapshot" if isinstance(entry["seed"], _DeltaSnapshot) else "legacy_plain"
            event = HistoryEvent(
                result.outcome, channel, kind, len(entry["writes"]), calls, seconds
            )
            emit(self._self_shared.on_event, event)

    def _rooted(self, key: ChainKey) -> bool:
        try:
            rooted = self._self_traits.rooted
            return rooted is not None and rooted(self.__wrapped__, key.thread_id, key.checkpoint_ns)
        except Exception:  # noqa: BLE001 - no proof, so nothing is kept
            return False

    async def _arooted(self, key: ChainKey) -> bool:
        try:
            rooted = self._self_traits.arooted
            return rooted is not None and await rooted(
                self.__wrapped__, key.thread_id, key.checkpoint_ns
            )
        except Exception:  # noqa: BLE001 - no proof, so nothing is kept
            return False

    # -- writing ---------------------------------------------------------------------------

    def _put(self, *args: Any, **kwargs: Any) -> Any:
        return drive(self._store_checkpoint("put", args, kwargs), {"inner": self._call})

    async def _aput(self, *args: Any, **kwargs: Any) -> Any:
        plan = self._store_checkpoint("aput", args, kwargs)
        return await adrive(plan, {"inner": self._call})

    def _put_writes(self, *args: Any, **kwargs: Any) -> Any:
        return drive(self._store_writes("put_writes", args, kwargs), {"inner": self._call})

    async def _aput_writes(self, *args: Any, **kwargs: Any) -> Any:
        plan = self._store_writes("aput_writes", args, kwargs)
        return await adrive(plan, {"inner": self._call})

    def _store_checkpoint(self, name: str, args: Any, kwargs: Any) -> Plan[Any]:
        config = _argument("config", 0, args, kwargs)
        checkpoint = _argument("checkpoint", 1, args, kwargs)
        metadata = _argument("metadata", 2, args, kwargs) or {}
        if self._self_traits.kind == "storage":
            _require_thread(name, config)
        shared = self._self_shared
        counters = metadata.get(_COUNTERS) or ()
        shared.track(counters)
        cid = checkpoint["id"]
        chains = self._chains_to_write(config)
        clean: list[tuple[ChainKey, Chain, bool]] = []
        for key, chain in chains:
            with chain.lock:
                chain.track(counters)
                clean.append((key, chain, chain.begin_put(cid)))
        learns = bool(chains) and self._self_traits.kind == "storage"
        before = self._packed_seeds(chains, checkpoint) if learns else {}
        try:
            stored = yield "inner", (name, args, kwargs)
        except BaseException:
            self._distrust(chains)
            raise
        after = self._packed_seeds(chains, checkpoint) if learns else {}
        seeds = {c: v if after.get(c) == v else HELD for c, v in before.items()}
        for key, chain, is_clean in clean:
            with chain.lock:
                try:
                    if is_clean and not chain.closed:
                        self._born(chain, config, checkpoint, metadata, seeds, args, kwargs)
                except Exception:  # noqa: BLE001 - the checkpoint is stored: what fails is ours
                    is_clean = False
                    shared.failed()
                chain.end_put(cid, clean=is_clean)
            self._measure(key)
        return stored

    def _born(
        self,
        chain: Chain,
        config: Any,
        checkpoint: Any,
        metadata: Any,
        seeds: Mapping[str, Packed | str],
        args: Any,
        kwargs: Any,
    ) -> None:
        storage = self._self_traits.kind == "storage"
        cid = checkpoint["id"]
        chain.born(
            cid,
            _configurable(config).get("checkpoint_id") or None,
            seeds,
            versions=checkpoint.get("channel_versions") or {},
            new_versions=_argument("new_versions", 3, args, kwargs) or {},
            step=_step(metadata),
            depth=depth_of(metadata),
            fresh=storage and self._self_shared.minted_here(cid),
        )

    def _packed_seeds(
        self, chains: Sequence[tuple[ChainKey, Chain]], checkpoint: Any
    ) -> dict[str, Packed | str]:
        """Per recorded channel what this checkpoint stores: nothing, a snapshot, or something else."""
        values = checkpoint.get("channel_values") or {}
        _, serde = self._decoding()
        out: dict[str, Packed | str] = {}
        for channel in set().union(*(chain.channels for _, chain in chains)):
            if channel not in values:
                out[channel] = ABSENT
            elif isinstance(values[channel], _DeltaSnapshot):
                out[channel] = _pack(serde, values[channel]) or HELD
            else:
                out[channel] = HELD
        return out

    def _store_writes(self, name: str, args: Any, kwargs: Any) -> Plan[Any]:
        config = _argument("config", 0, args, kwargs)
        writes = _argument("writes", 1, args, kwargs) or ()
        if self._self_traits.kind == "storage":
            _require_thread(name, config)
        shared = self._self_shared
        cid = _configurable(config).get("checkpoint_id")
        begun: list[tuple[ChainKey, Chain, Writing]] = []
        chains = self._chains_to_write(config)
        if chains and type(cid) is str:
            names = [write[0] for write in writes]
            for key, chain in chains:
                with chain.lock:
                    writing = chain.begin_rows(cid, names)
                if writing is not None:
                    begun.append((key, chain, writing))
        if not begun:
            return (yield "inner", (name, args, kwargs))
        records = self._self_traits.kind == "storage" and any(w.node for _, _, w in begun)
        channels = frozenset[str]().union(*(chain.channels for _, chain, _ in begun))
        before = self._rows(channels, args, kwargs) if records else None
        try:
            stored = yield "inner", (name, args, kwargs)
        except BaseException:
            for _, chain, writing in begun:
                with chain.lock:
                    chain.end_rows(cid, writing, None)
            self._distrust([(key, chain) for key, chain, _ in begun])
            raise
        rows = before if records and before == self._rows(channels, args, kwargs) else None
        for _, chain, writing in begun:
            with chain.lock:
                chain.end_rows(cid, writing, rows)
        if rows is not None:
            shared.count("learned")
        return stored

    def _rows(self, channels: frozenset[str], args: Any, kwargs: Any) -> list[Row] | None:
        """The recorded channels' writes as rows; None if one cannot be serialised."""
        _, serde = self._decoding()
        task_id = _argument("task_id", 2, args, kwargs)
        path = _argument("task_path", 3, args, kwargs) or ""
        rows = []
        for index, (channel, value) in enumerate(_argument("writes", 1, args, kwargs)):
            if channel not in channels:
                continue
            packed = _pack(serde, value)
            if packed is None:
                return None
            rows.append(Row(path, task_id, WRITES_IDX_MAP.get(channel, index), channel, packed))
        return rows

    def _distrust(self, chains: Sequence[tuple[ChainKey, Chain]]) -> None:
        for _, chain in chains:
            with chain.lock:
                chain.distrust(_DISTRUST_SECONDS)

    # -- forgetting ------------------------------------------------------------------------

    def _forget_threads(self, name: str, args: Any, kwargs: Any, threads: list[Any]) -> Plan[Any]:
        """Run a call that deletes rows; forget before it, and again what was read meanwhile."""
        for thread_id in threads:
            self.purge_thread(thread_id)
        try:
            return (yield "inner", (name, args, kwargs))
        finally:
            for thread_id in threads:
                self.purge_thread(thread_id)

    def _forget_all(self, name: str, args: Any, kwargs: Any) -> Plan[Any]:
        self.cache_clear()
        try:
            return (yield "inner", (name, args, kwargs))
        finally:
            self.cache_clear()

    # -- helpers ---------------------------------------------------------------------------

    def _call(self, call: tuple[str, Any, Any]) -> Any:
        name, args, kwargs = call
        return getattr(self.__wrapped__, name)(*args, **kwargs)

    def _new_chain(self) -> Chain:
        traits = self._self_traits
        return Chain(
            self._self_shared.channels,
            ordered=traits.ordered,
            seeds_by_version=traits.seeds_by_version,
        )

    def _key(self, config: Any) -> ChainKey | None:
        """The chain a config of a storage saver belongs to; None if it may not be cached.

        Thread ids that are not strings stay uncached: savers differ in whether 1 and "1"
        are the same thread.
        """
        configurable = _configurable(config)
        thread_id, ns = configurable.get("thread_id"), configurable.get("checkpoint_ns", "")
        if type(thread_id) is not str or type(ns) is not str:
            return None
        return ChainKey(self._self_shared.prefix, thread_id, ns)

    def _resolved_key(self, config: Any, row: Any) -> ChainKey | None:
        """The chain of the checkpoint a wrapping saver resolved, scoped by all it resolved from."""
        key = self._key(config)
        if key is None or row is None:
            return None
        scope = {
            name: f"{type(value).__name__}:{value}"
            for name, value in _configurable(row.config).items()
            if name not in {"checkpoint_id", "checkpoint_map"}
            and not name.startswith("__")
            and isinstance(value, str | int | float | bool)
        }
        return key._replace(scope=tuple(sorted(scope.items())))

    def _resolve(self, chain: Chain, row: Any) -> None:
        """Teach the chain the target's own links; nothing else of it is trusted."""
        with chain.lock:
            if not chain.closed:
                chain.seen(
                    row.checkpoint["id"],
                    _configurable(row.parent_config).get("checkpoint_id"),
                    row.checkpoint.get("channel_values") or (),
                    row.pending_writes or (),
                    step=_step(row.metadata),
                    depth=depth_of(row.metadata),
                    had_child=False,
                )

    def _existing(self, config: Any) -> tuple[ChainKey, Chain] | None:
        """The chain of a config if there is one; none is made."""
        key = self._key(config)
        if key is None:
            return None
        for found, chain in self._self_shared.cache.chains(key.prefix, key.thread_id):
            if found == key:
                return found, chain
        return None

    def _chains_to_write(self, config: Any) -> list[tuple[ChainKey, Chain]]:
        """Every chain a write may concern.

        For a storage saver that is one, made if delta channels are known. A wrapping saver
        decides for itself which rows a config means, so all chains of the thread and
        namespace are meant.
        """
        shared = self._self_shared
        key = self._key(config)
        if key is None:
            thread_id = _configurable(config).get("thread_id")
            if thread_id is not None:
                self.purge_thread(thread_id)
            return []
        if not shared.cache.enabled or not shared.channels:
            return []
        if self._self_traits.kind == "storage":
            return [(key, shared.cache.chain(key, self._new_chain))]
        return [
            (found, chain)
            for found, chain in shared.cache.chains(key.prefix, key.thread_id)
            if found.checkpoint_ns == key.checkpoint_ns
        ]

    def _decoding(self) -> tuple[Any, Serde]:
        """How this wrapper's saver decodes: a token equal for equal ways, and the serialiser."""
        serde = self.__wrapped__.serde
        known = self._self_decoding
        if known is None or known[2] is not serde:
            known = self._self_decoding = (_token(serde), _plain(serde), serde)
        return known[0], known[1]


def _with_proof(plan: Plan[Result], key: ChainKey) -> Plan[Result]:
    """Let the drivers answer `rooted` for the whole thread and namespace."""
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            request, argument = plan.send(answer) if error is None else plan.throw(error)
            error = None
            try:
                answer = yield request, key if request == "rooted" else argument
            except BaseException as raised:  # noqa: BLE001 - handed to the plan
                error = raised
    except StopIteration as stop:
        return cast("Result", stop.value)


def _user_class(saver: CachedHistorySaver) -> type[CachedHistorySaver]:
    """The class the user named: the generated one's only base."""
    return cast("type[CachedHistorySaver]", type(saver).__mro__[1])


def _special(saver: Any, name: str) -> Callable[..., Any]:
    method = getattr(type(saver), name, None)
    if method is None:
        msg = f"{type(saver).__name__!r} object does not support the context manager protocol"
        raise TypeError(msg)
    return cast("Callable[..., Any]", method.__get__(saver))


def _argument(name: str, position: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)


def _configurable(config: Any) -> Mapping[str, Any]:
    found = config.get("configurable") if isinstance(config, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _require_thread(operation: str, config: Any) -> None:
    if "thread_id" not in _configurable(config):
        msg = (
            f"{operation}: config must name a thread, as "
            '{"configurable": {"thread_id": ..., "checkpoint_ns": ""}}; '
            f"got {config!r}"
        )
        raise InvalidConfigError(msg)


def _history_arguments(args: Any, kwargs: Any) -> tuple[Any, tuple[str, ...]]:
    """Config and channels of a history call, checked.

    Raises:
        InvalidConfigError: no thread in the config, or channels that are no sequence of names.

    """
    if args or not {"config", "channels"} >= kwargs.keys() or len(kwargs) != 2:  # noqa: PLR2004
        msg = "get_delta_channel_history() takes exactly two keyword arguments: config and channels"
        raise TypeError(msg)
    config, channels = kwargs["config"], kwargs["channels"]
    if isinstance(channels, str) or not isinstance(channels, Collection):
        msg = f"channels must be a sequence of channel names, got {type(channels).__name__}"
        raise InvalidConfigError(msg)
    names = tuple(dict.fromkeys(channels))
    if not all(isinstance(name, str) for name in names):
        msg = f"channels must hold channel names (str), got {names!r}"
        raise InvalidConfigError(msg)
    if names:
        _require_thread("get_delta_channel_history", config)
    return config, names


def _step(metadata: Any) -> int | None:
    step = metadata.get("step")
    return step if isinstance(step, int) else None


def _on_own_loop(saver: Any) -> bool:
    loop = getattr(saver, "loop", None)
    if loop is None:
        return False
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _plain(serde: Any) -> Serde:
    """The serialiser below encryption: what is kept here never leaves the process."""
    while isinstance(serde, EncryptedSerializer):
        serde = serde.serde
    return cast("Serde", serde)


def _token(serde: Any) -> Any:
    """Equal for serialisers that decode alike: same class, same allowlists."""
    serde = _plain(serde)
    if type(serde) is not JsonPlusSerializer:
        return ("object", id(serde))
    lists = [
        frozenset(value) if isinstance(value, set) else value
        for value in (
            getattr(serde, "_allowed_msgpack_modules", None),
            getattr(serde, "_allowed_json_modules", None),
        )
    ]
    hook = id(serde._unpack_ext_hook) if getattr(serde, "_custom_unpack_ext_hook", True) else 0  # noqa: SLF001
    return ("jsonplus", *lists, serde.pickle_fallback, hook)


def _pack(serde: Serde, value: Any) -> Packed | None:
    try:
        return Packed(*serde.dumps_typed(value))
    except Exception:  # noqa: BLE001 - the saver will say so itself, or it has its own way
        return None


def _forgetting(name: str, threads: Callable[[Any, Any], list[Any]] | None) -> dict[str, Any]:
    """Both faces of a call that deletes rows; `threads` names those it touches, None all."""

    def plan(self: CachedHistorySaver, face: str, args: Any, kwargs: Any) -> Plan[Any]:
        if threads is None:
            return self._forget_all(face, args, kwargs)
        return self._forget_threads(face, args, kwargs, threads(args, kwargs))

    def method(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
        return drive(plan(self, name, args, kwargs), {"inner": self._call})

    async def amethod(self: CachedHistorySaver, *args: Any, **kwargs: Any) -> Any:
        return await adrive(plan(self, f"a{name}", args, kwargs), {"inner": self._call})

    return {name: method, f"a{name}": amethod}


_METHODS: dict[str, Callable[..., Any]] = {
    "get_tuple": CachedHistorySaver._get_tuple,
    "aget_tuple": CachedHistorySaver._aget_tuple,
    "list": CachedHistorySaver._list,
    "alist": CachedHistorySaver._alist,
    "put": CachedHistorySaver._put,
    "aput": CachedHistorySaver._aput,
    "put_writes": CachedHistorySaver._put_writes,
    "aput_writes": CachedHistorySaver._aput_writes,
    "get_delta_channel_history": CachedHistorySaver._get_delta_channel_history,
    "aget_delta_channel_history": CachedHistorySaver._aget_delta_channel_history,
    **_forgetting("delete_thread", lambda args, kw: [_argument("thread_id", 0, args, kw)]),
    **_forgetting("prune", lambda args, kw: list(_argument("thread_ids", 0, args, kw) or ())),
    **_forgetting("copy_thread", lambda args, kw: [_argument("target_thread_id", 1, args, kw)]),
    **_forgetting("delete_for_runs", None),
}
