"""Plans for the writing and deleting methods: learn from what was stored, forget what went."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import argument, configurable, require_thread, step_of
from deerflow_saver._core import Core
from deerflow_saver._plan import Plan
from deerflow_saver._serde import pack
from deerflow_saver.cache.base import ChainKey
from deerflow_saver.channel_mode.marker import snapshots_in
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.facts import ABSENT, HELD, ChainBusy, Packed, Row, Writing
from deerflow_saver.history.minting import minted
from deerflow_saver.history.reader import COUNTERS, depth_of, overdue_of

__all__ = [
    "announce",
    "delta_channels",
    "forget_all",
    "forget_threads",
    "store_checkpoint",
    "store_writes",
]

_DISTRUST_SECONDS = 10.0
"""How long nothing is learnt about a thread after a write ended without telling whether it
was stored: a cancelled or disconnected write may still arrive."""

Chains = Sequence[tuple[ChainKey, Chain]]


def announce(core: Core, args: Any, kwargs: Any) -> None:
    """A `put` that may have to wait first: record its delta channels' writes from now on."""
    counters = (argument("metadata", 2, args, kwargs) or {}).get(COUNTERS)
    if not counters:
        return
    core.shared.track(counters)
    found = core.existing(argument("config", 0, args, kwargs))
    if found is not None and not found[1].channels >= set(counters):
        with contextlib.suppress(ChainBusy), found[1].lock:
            found[1].track(counters)


def delta_channels(args: Any, kwargs: Any) -> frozenset[str]:
    """The channels that a `put` shows to be delta: counted ones, and those with a snapshot."""
    counted = (argument("metadata", 2, args, kwargs) or {}).get(COUNTERS) or ()
    checkpoint = argument("checkpoint", 1, args, kwargs) or {}
    return frozenset((*counted, *snapshots_in(checkpoint.get("channel_values"))))


Witnessed = Callable[[], Mapping[tuple[str, str], int] | None]
"""How many writes per (task id, channel) the guard saw on a put's parent; None: it did not look."""


def store_checkpoint(
    core: Core, name: str, args: Any, kwargs: Any, *, witnessed: Witnessed = lambda: None
) -> Plan[Any]:
    """`put`: pass it on and learn the new checkpoint's parent and snapshots."""
    config = argument("config", 0, args, kwargs)
    checkpoint = argument("checkpoint", 1, args, kwargs)
    metadata = argument("metadata", 2, args, kwargs) or {}
    if config is None or checkpoint is None:  # the saver says itself what is missing
        return (yield "inner", (name, args, kwargs))
    if core.storage:
        require_thread(name, config)
    if core.lost is not None:
        core.lost.refuse(config, checkpoint, metadata, core.shared.since)
    counters = metadata.get(COUNTERS) or ()
    core.shared.track(counters)
    chains = core.to_write(config)
    cid = checkpoint["id"]
    full = _written_in_full(checkpoint) if chains else ()
    for _, chain in chains if not core.storage else ():
        # another saver's branches may share stored values
        with contextlib.suppress(ChainBusy), chain.lock:
            chain.leave_line(configurable(config).get("checkpoint_id"))
    begun = [(key, chain, _begin_put(chain, cid, counters, full)) for key, chain in chains]
    before = _seeds(core, chains, checkpoint)
    try:
        stored = yield "inner", (name, args, kwargs)
    except BaseException:
        _distrust(chains)
        raise
    seeds = _unchanged(before, _seeds(core, chains, checkpoint))
    for key, chain, clean in begun:
        with contextlib.suppress(ChainBusy), chain.lock:
            learnt = clean and _born(core, chain, args, kwargs, seeds, metadata, witnessed())
            chain.end_put(cid, clean=learnt)
        core.measure(key)
    return stored


def _begin_put(chain: Chain, checkpoint_id: str, counters: Any, full: Any) -> bool:
    try:
        with chain.lock:
            chain.untrack(full)
            chain.track(counters or ())
            return chain.begin_put(checkpoint_id)
    except ChainBusy:
        return False


def _born(
    core: Core,
    chain: Chain,
    args: Any,
    kwargs: Any,
    seeds: Mapping[str, Any],
    metadata: Any,
    witnessed: Any,
) -> bool:
    """Teach the chain a stored checkpoint; False if that failed."""
    config = argument("config", 0, args, kwargs)
    checkpoint = argument("checkpoint", 1, args, kwargs)
    cid = checkpoint["id"]
    try:
        chain.born(
            cid,
            configurable(config).get("checkpoint_id") or None,
            seeds,
            versions=checkpoint.get("channel_versions") or {},
            new_versions=argument("new_versions", 3, args, kwargs) or {},
            step=step_of(metadata),
            depth=depth_of(metadata),
            overdue=overdue_of(metadata),
            minted=minted(cid) if core.storage else None,
            witnessed=witnessed,
        )
        shares = core.sharing is not None and core.sharing.fenced and witnessed is not None
        if shares and chain.epoch is not None:
            news = chain.news(cid, delta_channels(args, kwargs))
            if news is not None:
                chain.outbox[cid] = news  # published once the saver has committed
        chain.prepare(cid)
    except Exception:  # noqa: BLE001 - the checkpoint is stored: what fails here is ours
        core.shared.failed()
        return False
    return True


def _seeds(core: Core, chains: Chains, checkpoint: Any) -> dict[str, Packed | str]:
    """Per recorded channel what this checkpoint stores: nothing, a snapshot, or something else."""
    if not core.storage or not chains:
        return {}
    values = checkpoint.get("channel_values") or {}
    _, serde = core.decoding()
    out: dict[str, Packed | str] = {}
    for _, chain in chains:
        for channel in chain.channels:
            if channel not in values:
                out[channel] = ABSENT
            elif isinstance(values[channel], _DeltaSnapshot):
                out[channel] = pack(serde, values[channel]) or HELD
            else:
                out[channel] = HELD
    return out


def _written_in_full(checkpoint: Any) -> list[str]:
    """Channels this checkpoint stores as plain values: their writes need no recording."""
    values = checkpoint.get("channel_values") or {}
    return [name for name, value in values.items() if not isinstance(value, _DeltaSnapshot)]


def _unchanged(
    before: Mapping[str, Packed | str], after: Mapping[str, Packed | str]
) -> dict[str, Packed | str]:
    """What was the same before and after the call: a value changed meanwhile is not known."""
    return {c: value if after.get(c) == value else HELD for c, value in before.items()}


def store_writes(core: Core, name: str, args: Any, kwargs: Any) -> Plan[Any]:
    """`put_writes`: pass it on and learn the checkpoint's own writes."""
    config = argument("config", 0, args, kwargs)
    if core.storage and config is not None:
        require_thread(name, config)
    cid = configurable(config).get("checkpoint_id")
    writes = argument("writes", 1, args, kwargs) or ()
    if core.walker.paths is not None:
        core.walker.paths.note(config, argument("task_id", 2, args, kwargs), _path(args, kwargs))
    begun = _begin_rows(core, config, cid, writes)
    before = _rows(core, begun, args, kwargs) if begun else None
    try:
        stored = yield "inner", (name, args, kwargs)
    except BaseException as error:
        if core.lost is not None and isinstance(error, Exception):
            core.lost.note(config, writes, error)
        _end_rows(begun, cid, None)
        _distrust([(key, chain) for key, chain, _ in begun])
        raise
    if not begun:
        return stored
    rows = before if before is not None and before == _rows(core, begun, args, kwargs) else None
    _end_rows(begun, cid, rows)
    if rows is not None:
        core.shared.count("learned")
    return stored


Begun = list[tuple[ChainKey, Chain, Writing]]


def _begin_rows(core: Core, config: Any, cid: Any, writes: Any) -> Begun:
    begun: Begun = []
    if type(cid) is not str:
        return begun
    names = [write[0] for write in writes]
    core.shared.passes(names)
    for key, chain in core.to_write(config):
        writing: Writing | None = Writing(None, -1, late=True)
        with contextlib.suppress(ChainBusy), chain.lock:
            writing = chain.begin_rows(cid, names)
        if writing is not None:
            begun.append((key, chain, writing))
    return begun


def _end_rows(begun: Begun, checkpoint_id: Any, rows: list[Row] | None) -> None:
    for _, chain, writing in begun:
        with contextlib.suppress(ChainBusy), chain.lock:
            chain.end_rows(checkpoint_id, writing, rows)


def _rows(core: Core, begun: Begun, args: Any, kwargs: Any) -> list[Row] | None:
    """The recorded channels' writes as rows; None where they cannot or need not be known."""
    if not core.storage or all(writing.node is None for _, _, writing in begun):
        return None
    channels = set[str]().union(*(chain.channels for _, chain, _ in begun))
    _, serde = core.decoding()
    task_id = argument("task_id", 2, args, kwargs)
    path = _path(args, kwargs)
    rows = []
    for index, (channel, value) in enumerate(argument("writes", 1, args, kwargs)):
        if channel in channels:
            packed = pack(serde, value)
            if packed is None:
                return None
            rows.append(Row(path, task_id, WRITES_IDX_MAP.get(channel, index), channel, packed))
    return rows


def _path(args: Any, kwargs: Any) -> str:
    return argument("task_path", 3, args, kwargs) or ""


def _distrust(chains: Chains) -> None:
    for _, chain in chains:
        with contextlib.suppress(ChainBusy), chain.lock:
            chain.distrust(_DISTRUST_SECONDS)


def forget_threads(core: Core, call: tuple[str, Any, Any], threads: list[Any]) -> Plan[Any]:
    """A call that deletes rows of `threads`: forget them, and again what was read meanwhile."""
    for thread_id in threads:
        core.shared.forget_thread(thread_id)
    try:
        return (yield "inner", call)
    finally:
        for thread_id in threads:
            core.shared.forget_thread(thread_id)


def forget_all(core: Core, call: tuple[str, Any, Any]) -> Plan[Any]:
    """A call that deletes rows of nobody knows which threads."""
    core.shared.forget_all()
    try:
        return (yield "inner", call)
    finally:
        core.shared.forget_all()
