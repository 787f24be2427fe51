"""A checkpoint made again on top of another: the same state and the same tasks, all in one row.

A fork of checkpoint P is a child of P with P's content. Its linear twin has the same content,
but is a child of the head, and holds a snapshot of every delta channel. So no walk of a reader
goes past it, neither to what the head's tasks have written nor to the turn that was left, on any
release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langgraph._internal._typing import MISSING
from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.pregel._checkpoint import LATEST_VERSION

from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.marker import is_reserved

__all__ = [
    "NULL_TASK_ID",
    "Channels",
    "Source",
    "delta_names",
    "hydrated",
    "linear_copy",
    "stored_forms",
    "visible",
]

Channels = dict[str, BaseChannel[Any, Any, Any]]
NULL_TASK_ID = "00000000-0000-0000-0000-000000000000"
"""LangGraph's task id of what a `Command` writes, which belongs to the checkpoint's own state."""
_NO_STATE = frozenset(
    {
        "__no_writes__", "__pregel_push", "__resume__", "__interrupt__", "__return__",
        "__error__", "__error_source_node__", "__scheduled__",
    }
)  # fmt: skip
"""Channels of pending writes that `apply_writes` of LangGraph leaves out."""
_BUMPS = "__snapshot_bumps__"
"""LangGraph's record, among the versions seen, of versions that a snapshot alone has moved."""


class Source(NamedTuple):
    """A checkpoint's state: its row, and its channels as a run would find them."""

    row: Any
    channels: Channels
    written: frozenset[str]
    """Channels that a `Command` has written on top of what the row stores."""


def delta_names(channels: Mapping[str, Any]) -> list[str]:
    """The delta channels of a graph's table."""
    return [name for name, channel in channels.items() if isinstance(channel, DeltaChannel)]


def hydrated(specs: Mapping[str, Any], row: Any) -> Plan[Source]:
    """A row's channels with their values, and what a `Command` wrote there applied.

    Values are the ones just decoded for this read, so nothing needs to be copied. Writes of
    finished tasks are not part of it: they belong to the step that comes next.
    """
    stored, versions = row.checkpoint["channel_values"], row.checkpoint["channel_versions"]
    kept = {name: spec for name, spec in specs.items() if isinstance(spec, BaseChannel)}
    walked = [name for name in delta_names(kept) if name in versions and name not in stored]
    histories: Mapping[str, Any] = {}
    if walked:
        histories = yield "history", {"config": row.config, "channels": walked}
    channels: Channels = {}
    for name, spec in kept.items():
        history = histories.get(name, {})
        channels[name] = spec.from_checkpoint(history.get("seed", stored.get(name, MISSING)))
        if history:
            channels[name].replay_writes(history["writes"])  # type: ignore[attr-defined]
    return Source(row, channels, _apply_command(channels, row.pending_writes or ()))


def _apply_command(channels: Channels, pending: Iterable[tuple[str, str, Any]]) -> frozenset[str]:
    """Apply what every reader of a checkpoint takes for its own state."""
    writes: dict[str, list[Any]] = {}
    for task_id, name, value in pending:
        if task_id == NULL_TASK_ID and name in channels and name not in _NO_STATE:
            writes.setdefault(name, []).append(value)
    return frozenset(name for name, values in writes.items() if channels[name].update(values))


def linear_copy(
    source: Source,
    head: Any,
    specs: Mapping[str, Any],
    nodes: Mapping[str, Any],
    version: Any,
    replaced: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The checkpoint that puts the source's content on top of `head`.

    Args:
        source: what to copy.
        head: the row it goes on top of.
        specs: the graph's channel table.
        nodes: the graph's nodes, for what they are triggered by.
        version: a channel version greater than all of either row's: all channels get it, so
            that what is stored for older versions stays theirs.
        replaced: what channels store instead of the source's values (`stored_forms`). No node
            is started by it.

    """
    old, replaced = source.row.checkpoint, replaced or {}
    names = {*old["channel_versions"], *delta_names(specs), *source.written, *replaced}
    return {
        "v": max(LATEST_VERSION, old["v"]),
        "id": str(uuid6(clock_seq=head.metadata.get("step", 0))),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": {**_values(source), **replaced},
        "channel_versions": dict.fromkeys(names, version),
        "versions_seen": _seen(source, names, nodes, version),
        "updated_channels": _updated(source),
    }


def _values(source: Source) -> dict[str, Any]:
    stored = source.row.checkpoint["channel_values"]
    values = {name: value for name, value in stored.items() if name not in source.channels}
    for name, channel in source.channels.items():
        if isinstance(channel, DeltaChannel):
            values[name] = _DeltaSnapshot(channel.get())
        elif name in source.written:
            values[name] = channel.checkpoint()
        elif name in stored:
            values[name] = stored[name]
    return values


def stored_forms(specs: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint stores for channels that hold `values`; some channels store nothing.

    No reducer merges anything.
    """
    forms = {name: _stored_form(specs[name], value) for name, value in values.items()}
    return {name: form for name, form in forms.items() if form is not MISSING}


def _stored_form(spec: Any, value: Any) -> Any:
    if isinstance(spec, DeltaChannel):
        return _DeltaSnapshot(value)
    if isinstance(spec, BinaryOperatorAggregate):
        return value
    channel = spec.from_checkpoint(MISSING)
    channel.update([value])
    return channel.checkpoint()


def _updated(source: Source) -> list[str] | None:
    """The channels by which LangGraph looks for the nodes to run; None: all of them."""
    known = source.row.checkpoint.get("updated_channels")
    return None if known is None else sorted({*known, *source.written})


def _seen(
    source: Source, names: Iterable[str], nodes: Mapping[str, Any], version: Any
) -> dict[str, dict[str, Any]]:
    """The versions seen, in terms of the new ones: who had seen a channel's last has seen this."""
    old = source.row.checkpoint
    versions = old["channel_versions"]
    created = [name for name in names if name not in versions and name not in source.written]

    def moved(name: str, seen: Any) -> Any:
        last = versions.get(name)
        unread = name in source.written or (last is not None and seen < last)
        return seen if unread else version

    out = {
        node: {name: moved(name, seen) for name, seen in known.items()}
        for node, known in old["versions_seen"].items()
        if node != _BUMPS
    }
    for node in {*out, *nodes}:
        triggers = getattr(nodes.get(node), "triggers", created)
        for name in created:
            if name in triggers:  # made for a snapshot's sake, so nobody starts by it
                out.setdefault(node, {})[name] = version
    bumps = old["versions_seen"].get(_BUMPS)
    if bumps:
        out[_BUMPS] = {key: _moved_bump(key, at, moved) for key, at in bumps.items()}
    return out


def _moved_bump(key: str, at: Any, moved: Any) -> Any:
    """A mark `node|channel` moves with the version it stands for; `node:channel` is the past."""
    node, bar, name = key.partition("|")
    return at if not bar or ":" in node else moved(name, at)


def visible(source: Source) -> dict[str, Any]:
    """The state's values, as `get_state` shows them."""
    return {
        name: channel.get()
        for name, channel in source.channels.items()
        if not is_reserved(name) and channel.is_available()
    }
