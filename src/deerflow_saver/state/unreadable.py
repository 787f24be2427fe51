"""Delta values that the installed LangGraph does not read through an ordinary channel.

Before 1.2.16 such a channel shows nothing, or the stored snapshot unopened
(`delta-read-as-plain`), and the next write would make the loss final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel

from deerflow_saver._arguments import configurable
from deerflow_saver.channel_mode.marker import (
    COUNTERS_METADATA_KEY,
    DELTA_CHANNELS_METADATA_KEY,
    absent_channels,
    snapshots_in,
)
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.fixes import Presence, status

__all__ = ["may_be_unreadable", "refuse_unreadable_row", "refuse_unreadable_snapshot"]

Channels = Mapping[str, Any]


def refuse_unreadable_snapshot(snapshot: Any, channels: Channels) -> None:
    """Refuse a `StateSnapshot` that lacks delta values because its graph has ordinary channels.

    Raises:
        InvalidConfigError: so it is, as far as the snapshot's metadata and values tell.

    """
    metadata = getattr(snapshot, "metadata", None) or {}
    named = (metadata.get(COUNTERS_METADATA_KEY), metadata.get(DELTA_CHANNELS_METADATA_KEY))
    written = {name for names in named for name in names or ()}
    _refuse(written | snapshots_in(getattr(snapshot, "values", None)), channels, snapshot)


def may_be_unreadable(channels: Channels) -> bool:
    """Whether a thread may hold delta values that a graph with these channels does not read."""
    return any(isinstance(found, BinaryOperatorAggregate) for found in channels.values()) and (
        _reads_nothing()
    )


def refuse_unreadable_row(row: Any, channels: Channels) -> None:
    """Refuse to build upon a `CheckpointTuple` whose delta values a graph could not read.

    Raises:
        InvalidConfigError: so it is.

    """
    if row is not None:
        written = {*absent_channels(row, channels).certain}
        _refuse(written | snapshots_in(row.checkpoint.get("channel_values")), channels, row)


def _refuse(written: Iterable[str], channels: Channels, found: Any) -> None:
    """Refuse `found` if any of the channels written as deltas is an ordinary one of the graph."""
    unread = sorted(
        name
        for name in written
        if name in channels and not isinstance(channels[name], DeltaChannel)
    )
    if unread and _reads_nothing():
        names = configurable(getattr(found, "config", None))
        raise InvalidConfigError(
            f"thread {names.get('thread_id')!r}, namespace {names.get('checkpoint_ns', '')!r}, "
            f"checkpoint {names.get('checkpoint_id')!r} keeps {', '.join(unread)} as delta writes, "
            "which this LangGraph does not read through an ordinary channel. Compile the graph "
            "in delta mode, or update langgraph (1.2.16 or newer)"
        )


@cache
def _reads_nothing() -> bool:
    return status(["delta-read-as-plain"])[0].presence is not Presence.ABSENT
