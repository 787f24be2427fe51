"""Plans for the writing and deleting methods: learn from what was stored, forget what went."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import (
    PUT,
    PUT_WRITES,
    argument,
    arguments,
    configurable,
    require_thread,
    step_of,
)
from deerflow_saver._core import Core
from deerflow_saver._plan import Plan
from deerflow_saver._serde import pack
from deerflow_saver.cache.base import ChainKey
from deerflow_saver.channel_mode.marker import snapshots_in
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.facts import ABSENT, HELD, ChainBusy, Packed, Row, Writing
from deerflow_saver.history.minting import minted
from deerflow_saver.history.reader import COUNTERS, depths_of

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


def delta_channels(checkpoint: Any, metadata: Any) -> frozenset[str]:
    """The channels that a `put` shows to be delta: counted ones, and those with a snapshot."""
    counted = (metadata or {}).get(COUNTERS) or ()
    return frozenset((*counted, *snapshots_in((checkpoint or {}).get("channel_values"))))


Witnessed = Callable[[], Mapping[tuple[str, str], int] | None]
"""How many writes per (task id, channel) the guard saw on a put's parent; None: it did not look."""


def store_checkpoint(
    core: Core, name: str, args: Any, kwargs: Any, *, witnessed: Witnessed = lambda: None
) -> Plan[Any]:
    """`put`: pass it on and learn the new checkpoint's parent and snapshots."""
    config, checkpoint, metadata, new_versions = arguments(PUT, args, kwargs)
    metadata = metadata or {}
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
    parent = configurable(config).get("checkpoint_id")
    full = _written_in_full(checkpoint) if chains else ()
    for _, chain in chains if not core.storage else ():
        # another saver's branches may share stored values
        with contextlib.suppress(ChainBusy), chain.lock:
            chain.leave_line(parent)
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
            put = _Put(checkpoint, metadata, new_versions or {}, parent, seeds)
            learnt = clean and _born(core, chain, put, witnessed())
            chain.end_put(cid, clean=learnt)
        core.measure(key, chain)
    return stored


def _begin_put(chain: Chain, checkpoint_id: str, counters: Any, full: Any) -> bool:
    try:
        with chain.lock:
            chain.untrack(full)
            chain.track(counters or ())
            return chain.begin_put(checkpoint_id)
    except ChainBusy:
        return False


class _Put(NamedTuple):
    """A checkpoint that was stored."""

    checkpoint: Any
    metadata: Any
    new_versions: Any
    parent: str | None
    seeds: Mapping[str, Packed | str]
    """What it stores of the recorded channels."""


def _born(core: Core, chain: Chain, put: _Put, witnessed: Any) -> bool:
    """Teach the chain a stored checkpoint; False if that failed."""
    cid = put.checkpoint["id"]
    try:
        depth, overdue = depths_of(put.metadata)
        chain.born(
            cid,
            put.parent or None,
            put.seeds,
            versions=put.checkpoint.get("channel_versions") or {},
            new_versions=put.new_versions,
            step=step_of(put.metadata),
            depth=depth,
            overdue=overdue,
            minted=minted(cid) if core.storage else None,
            witnessed=witnessed,
        )
        shares = core.sharing is not None and core.sharing.fenced and witnessed is not None
        if shares and chain.epoch is not None:
            news = chain.news(cid, delta_channels(put.checkpoint, put.metadata))
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
    config, writes, task_id, path = arguments(PUT_WRITES, args, kwargs)
    if core.storage and config is not None:
        require_thread(name, config)
    cid = configurable(config).get("checkpoint_id")
    if core.walker.paths is not None:
        core.walker.paths.note(config, task_id, path or "")
    pairs = _pairs(writes)
    begun = _begin_rows(core, config, cid, pairs, task_id)
    recorded = any(writing.node is not None for _, _, writing in begun)
    values = _Values(core, pairs or ()) if recorded else None
    tape = None if values is None else values.tape
    try:
        stored = yield "inner", (name, args, kwargs) if tape is None else (name, args, kwargs, tape)
    except BaseException as error:
        if core.lost is not None and isinstance(error, Exception):
            core.lost.note(config, pairs or (), error)
        _end_rows(begun, cid, None)
        _distrust([(key, chain) for key, chain, _ in begun])
        raise
    if not begun:
        return stored
    rows = _rows(begun, values, task_id, path or "") if values else None
    _end_rows(begun, cid, rows)
    if rows is not None:
        core.shared.count("learned")
    return stored


Pairs = Sequence[tuple[Any, Any]]
Begun = list[tuple[ChainKey, Chain, Writing]]


def _pairs(writes: Any) -> Pairs | None:
    """Channel and value of each write; None if they are not what they should be."""
    try:
        return [(channel, value) for channel, value in writes or ()]
    except (TypeError, ValueError, RuntimeError):
        return None


def _begin_rows(core: Core, config: Any, cid: Any, pairs: Pairs | None, task_id: Any) -> Begun:
    begun: Begun = []
    known = type(cid) is str and pairs is not None  # else what is written is not, or where
    if cid is None:
        return begun
    names = [channel for channel, _ in pairs or ()]
    core.shared.passes(names)
    places = None if all(name in WRITES_IDX_MAP for name in names) else task_id
    for key, chain in core.to_write(config):
        writing: Writing | None = Writing(None, -1, late=True)
        with contextlib.suppress(ChainBusy), chain.lock:
            writing = chain.begin_rows(cid, names, places) if known else writing
        if writing is not None:
            begun.append((key, chain, writing))
    return begun


def _end_rows(begun: Begun, checkpoint_id: Any, rows: list[Row] | None) -> None:
    for _, chain, writing in begun:
        with contextlib.suppress(ChainBusy), chain.lock:
            chain.end_rows(checkpoint_id, writing, rows)


class _Values:
    """The values of a `put_writes`, as the saver serialises them.

    A saver whose class has changed some of the code that stores them cannot be taped: they are
    packed before and after the call, and known if nobody changed them meanwhile.
    """

    def __init__(self, core: Core, pairs: Pairs) -> None:
        self.pairs = pairs
        self.tape = core.tape()
        self._core = core
        self._before = self._packed() if self.tape is None else None

    def _packed(self) -> list[Packed] | None:
        return self._core.packed([value for _, value in self.pairs])

    def stored(self) -> Sequence[tuple[str, bytes]] | None:
        """What was stored; None if that is not known."""
        if self.tape is not None:
            return self.tape.values(self.pairs)
        return self._before if self._before is not None and self._before == self._packed() else None


def _rows(begun: Begun, values: _Values, task_id: Any, path: str) -> list[Row] | None:
    """The recorded channels' writes as rows; None where it is not known what was stored."""
    stored = values.stored()
    if stored is None:
        return None
    channels = set[str]().union(*(chain.channels for _, chain, _ in begun))
    return [
        Row(path, task_id, WRITES_IDX_MAP.get(channel, index), channel, Packed(*packed))
        for index, ((channel, _), packed) in enumerate(zip(values.pairs, stored, strict=True))
        if channel in channels
    ]


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
