"""Plans for the reading methods: pass the call on, learn from the row, answer histories."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import argument, configurable, require_thread, step_of
from deerflow_saver._core import Core
from deerflow_saver._plan import Plan
from deerflow_saver.cache.base import ChainKey
from deerflow_saver.events import HistoryEvent, SeedKind, emit
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.reader import COUNTERS, Reading, Result, depth_of, read
from deerflow_saver.history.segment import View

__all__ = ["Listing", "may_answer", "read_history", "read_row"]


def read_row(core: Core, name: str, args: Any, kwargs: Any) -> Plan[Any]:
    """`get_tuple`: pass it on and learn from the row."""
    config = argument("config", 0, args, kwargs)
    found, serial, had_child = None, 0, False
    if core.storage:
        require_thread(name, config)
        found = core.existing(config)
    if found is not None:
        chain = found[1]
        with chain.lock:
            serial = chain.serial
            had_child = chain.has_child(configurable(config).get("checkpoint_id") or "")
    row = yield "inner", (name, args, kwargs)
    if row is not None and core.storage:
        _learn(core, config, row, found[1] if found else None, serial, had_child=had_child)
    return row


class Listing:
    """What a listing of one thread teaches while its rows pass."""

    def __init__(self, core: Core, args: Any, kwargs: Any) -> None:
        """Note which chains exist, and that nothing was written to them yet."""
        self._core = core
        self._serials: dict[ChainKey, int] = {}
        thread_id = configurable(argument("config", 0, args, kwargs)).get("thread_id")
        if core.storage and type(thread_id) is str:
            shared = core.shared
            for key, chain in shared.cache.chains(shared.prefix, thread_id):
                self._serials[key] = chain.serial

    def passes(self, row: Any) -> None:
        """Learn from one row."""
        found = self._core.existing(row.config) if self._serials else None
        if found is None or found[0] not in self._serials:
            return
        key, chain = found
        had_child = chain.has_child(row.checkpoint.get("id"))
        _learn(self._core, row.config, row, chain, self._serials[key], had_child=had_child)


def _learn(
    core: Core, config: Any, row: Any, chain: Chain | None, serial: int, *, had_child: bool
) -> None:
    shared = core.shared
    try:
        counters = row.metadata.get(COUNTERS)
        shared.track(counters or ())
        key = core.key(config)
        if key is None or not shared.channels or not shared.cache.enabled:
            return
        chain = chain or core.chain(key)
        with chain.lock:
            if not chain.closed and chain.serial == serial:
                chain.track(counters or ())
                _see(chain, row, had_child=had_child)
    except Exception:  # noqa: BLE001 - the row was read: whatever fails here is ours
        shared.failed()


def _see(chain: Chain, row: Any, *, had_child: bool) -> None:
    chain.seen(
        row.checkpoint["id"],
        configurable(row.parent_config).get("checkpoint_id"),
        row.checkpoint.get("channel_values") or (),
        row.pending_writes or (),
        step=step_of(row.metadata),
        depth=depth_of(row.metadata),
        had_child=had_child,
    )


def may_answer(core: Core, *, sync: bool) -> bool:
    """Whether the cache may answer on this face, here and now."""
    if not core.shared.cache.enabled:
        return False
    if not (core.traits.sync if sync else core.traits.asynchronous):
        return False
    # LangGraph's async savers refuse sync calls on their own loop; so must the wrapper
    return not (sync and core.storage and _on_own_loop(core.inner))


def _on_own_loop(saver: Any) -> bool:
    loop = getattr(saver, "loop", None)
    if loop is None:
        return False
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def read_history(core: Core, face: str, config: Any, channels: tuple[str, ...]) -> Plan[Any]:
    """One read of delta histories."""
    shared = core.shared
    started = time.perf_counter() if shared.on_event is not None else 0.0
    if not channels:
        return {}
    key, row = core.key(config), None
    if not core.storage:
        row = yield "get_tuple", config
        key = core.resolved_key(config, row)
    cid = row.checkpoint["id"] if row is not None else configurable(config).get("checkpoint_id")
    if key is None or type(cid) is not str or not cid:
        shared.count("bypasses")
        return (yield "history", channels)
    shared.track(channels)

    def chain_of() -> Chain:
        chain = core.chain(key)
        if row is not None:
            # The target's own links; nothing else of a wrapping saver's rows is trusted
            with chain.lock:
                if not chain.closed:
                    _see(chain, row, had_child=False)
        return chain

    reading = _reading(core, face, key, config, cid, channels)
    result = yield from read(chain_of, reading, shared.flights)
    _account(core, key, result)
    if shared.on_event is not None:
        _report(core, result, time.perf_counter() - started)
    return result.history


def _reading(
    core: Core, face: str, key: ChainKey, config: Any, cid: str, channels: tuple[str, ...]
) -> Reading:
    token, serde = core.decoding()

    def config_of(checkpoint_id: str) -> Any:
        return {**config, "configurable": {**configurable(config), "checkpoint_id": checkpoint_id}}

    return Reading(
        place=key,
        checkpoint_id=cid,
        channels=channels,
        token=token,
        make_view=lambda: View(serde, core.shared.isolation),
        config_of=config_of,
        on_error=core.shared.failed,
        kind=core.traits.kind,
        provable=core.traits.rooted is not None,
        proof_is_cheap=core.traits.prove_always,
        # A sync reader must never wait for a task of a loop that may be its own
        flight_key=(face, key, cid, channels, token),
    )


def _account(core: Core, key: ChainKey, result: Result) -> None:
    shared = core.shared
    if result.outcome == "hit":
        shared.count("hits")
    else:
        shared.count("misses")
        shared.count("composed" if result.outcome == "composed" else "walks")
        shared.count("fetches", result.fetches)
    core.measure(key)


def _report(core: Core, result: Result, seconds: float) -> None:
    calls = result.fetches + (result.outcome == "walk")
    for channel, entry in cast("Mapping[str, Any]", result.history).items():
        kind: SeedKind = "root"
        if "seed" in entry:
            kind = "snapshot" if isinstance(entry["seed"], _DeltaSnapshot) else "legacy_plain"
        depth = len(entry["writes"])
        emit(
            core.shared.on_event,
            HistoryEvent(result.outcome, channel, kind, depth, calls, seconds),
        )
