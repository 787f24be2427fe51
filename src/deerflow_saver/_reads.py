"""Plans for the reading methods: pass the call on, learn from the row, answer histories."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import argument, configurable, require_thread, step_of
from deerflow_saver._core import Core, Shared
from deerflow_saver._plan import Plan
from deerflow_saver.cache.base import ChainKey
from deerflow_saver.events import HistoryEvent, SeedKind, emit
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.facts import ChainBusy
from deerflow_saver.history.reader import (
    COUNTERS,
    Reading,
    Result,
    depths_of,
    read,
)
from deerflow_saver.history.segment import View
from deerflow_saver.walks.asking import on_own_loop

__all__ = ["Listing", "read_history", "read_row"]


def read_row(core: Core, name: str, args: Any, kwargs: Any) -> Plan[Any]:
    """`get_tuple`: pass it on and learn from the row."""
    config = argument("config", 0, args, kwargs)
    chain, serial, had_child = None, None, False
    if core.storage and config is not None:
        require_thread(name, config)
        key = core.key(config)
        if key is not None and core.shared.since and core.shared.cache.enabled:
            chain = core.chain(key)
            with contextlib.suppress(ChainBusy), chain.lock:
                serial = chain.serial
                had_child = chain.has_child(configurable(config).get("checkpoint_id") or "")
    row = yield "inner", (name, args, kwargs)
    if row is not None and core.storage:
        _learn(core, row, chain, serial, had_child=had_child)
        if not configurable(config).get("checkpoint_id"):
            core.saw_head(row)
    return row


class Listing:
    """What a listing of one thread teaches while its rows pass."""

    def __init__(self, core: Core, args: Any, kwargs: Any) -> None:
        """Note which chains exist, and that nothing was written to them yet."""
        self._core = core
        self._serials: dict[ChainKey, int] = {}
        wanted = core.key(argument("config", 0, args, kwargs))
        if core.storage and wanted is not None and core.shared.cache.enabled:
            core.chain(wanted)  # made now, so that a write while rows pass is noticed
            for key, chain in core.shared.cache.chains(wanted.prefix, wanted.thread_id):
                self._serials[key] = chain.serial

    def passes(self, row: Any) -> None:
        """Learn from one row."""
        found = self._core.existing(row.config) if self._serials else None
        if found is None or found[0] not in self._serials:
            return
        key, chain = found
        had_child = chain.has_child(row.checkpoint.get("id"))
        _learn(self._core, row, chain, self._serials[key], had_child=had_child)


def _learn(
    core: Core, row: Any, chain: Chain | None, serial: int | None, *, had_child: bool
) -> None:
    """Teach a chain the row, unless something was written since `serial` was noted."""
    try:
        counters = row.metadata.get(COUNTERS) or ()
        core.shared.track(counters)
        if chain is None:
            return
        with contextlib.suppress(ChainBusy), chain.lock:
            if not chain.closed and chain.serial == serial:
                chain.track(counters)
                _see(chain, row, had_child=had_child)
    except Exception:  # noqa: BLE001 - the row was read: whatever fails here is ours
        core.shared.failed()


def _see(chain: Chain, row: Any, *, had_child: bool) -> None:
    depth, overdue = depths_of(row.metadata)
    chain.seen(
        row.checkpoint["id"],
        configurable(row.parent_config).get("checkpoint_id"),
        row.checkpoint.get("channel_values") or (),
        row.pending_writes or (),
        versions=row.checkpoint.get("channel_versions") or {},
        step=step_of(row.metadata),
        depth=depth,
        overdue=overdue,
        had_child=had_child,
    )


def read_history(core: Core, face: str, config: Any, channels: tuple[str, ...]) -> Plan[Any]:
    """One read of delta histories, from the cache where it may answer."""
    started = time.perf_counter() if core.shared.on_event is not None else 0.0
    if not channels:
        return {}
    key, row = None, None
    if _may_answer(core, sync=face == "sync"):
        key = core.key(config)
        if not core.storage:
            row = yield "get_tuple", config
            key = core.resolved_key(config, row)
    cid = row.checkpoint["id"] if row is not None else configurable(config).get("checkpoint_id")
    if key is None or type(cid) is not str or not cid:
        core.shared.count("bypasses")
        result = Result((yield "history", channels), "bypass", 0)
    else:
        core.shared.track(channels)
        reading = _reading(core, face, key, config, cid, channels)
        result = yield from read(lambda: _chain(core, key, row), reading, core.shared.flights)
        _account(core, key, result)
    if core.shared.on_event is not None:
        _report(core.shared, result, time.perf_counter() - started)
    return result.history


def _chain(core: Core, key: ChainKey, row: Any) -> Chain:
    """The chain to answer from, which learns a resolved target's own links.

    Nothing else of a wrapping saver's rows is trusted.
    """
    chain = core.chain(key)
    if row is not None:
        with contextlib.suppress(ChainBusy), chain.lock:
            if not chain.closed:
                _see(chain, row, had_child=False)
    return chain


def _may_answer(core: Core, *, sync: bool) -> bool:
    """Whether the cache may answer on this face, here and now."""
    if not core.shared.cache.enabled:
        return False
    if not (core.traits.sync if sync else core.traits.asynchronous):
        return False
    # LangGraph's async savers refuse sync calls on their own loop; so must the wrapper
    return not (sync and core.storage and on_own_loop(core.inner))


def _reading(
    core: Core, face: str, key: ChainKey, config: Any, cid: str, channels: tuple[str, ...]
) -> Reading:
    decoding, serde = core.decoding()
    token: tuple[Any, ...] = (decoding, core.shared.isolation)
    if not core.traits.plain_seeds:
        token = (*token, face)  # one face may have its own walk, the other the base class's

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
        plain_seeds=core.traits.plain_seeds,
        shares=core.sharing is not None,
        by_task=core.traits.by_task and core.walker.paths is None,
    )


def _account(core: Core, key: ChainKey, result: Result) -> None:
    shared = core.shared
    if result.outcome == "hit":
        shared.count("hits")
    else:
        shared.count("misses", "composed" if result.outcome == "composed" else "walks")
    if result.fetches:
        shared.count("fetches", by=result.fetches)
    if result.shared:
        shared.count("shared")
    core.measure(key, core.chain(key))


def _report(shared: Shared, result: Result, seconds: float) -> None:
    """Tell the hook; whatever a wrapped saver answered, the read goes on."""
    outcome, hook = result.outcome, shared.on_event
    calls = result.fetches + (outcome == "walk" or outcome == "bypass")  # noqa: PLR1714 - quicker
    try:
        for channel, entry in result.history.items():
            kind: SeedKind = "missing" if result.missing else "root"
            if "seed" in entry:
                kind = "snapshot" if isinstance(entry["seed"], _DeltaSnapshot) else "legacy_plain"
            depth, overdue = len(entry["writes"]), channel in result.overdue
            emit(hook, HistoryEvent(outcome, channel, kind, depth, calls, seconds, overdue))
    except Exception:  # noqa: BLE001 - a history of another shape than LangGraph's
        shared.failed()
