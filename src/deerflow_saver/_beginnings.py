"""Where a channel's history begins, although older checkpoints own writes of it.

In full mode a step may be given up: a task failed or asked, and new input came instead. What its
finished tasks wrote stays with the checkpoint and is never applied. Once the channel has a value,
every checkpoint stores it, and a walk ends there. Before that nothing tells a walk to end.

LangGraph gives a channel a version with its first applied write (`apply_writes`), and takes a
channel without a version for an empty one (`_delta_channels_to_replay`). So at a checkpoint of
full mode that has no version of a channel, the channel's history is empty. Checkpoints of delta
mode count the channel, and are left alone; so are those made by hand, which have no versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

__all__ = ["COUNTERS", "unwritten", "unwritten_at"]

COUNTERS = "counters_since_delta_snapshot"
"""LangGraph's metadata key: per delta channel `(updates, supersteps)` since its last snapshot."""


def unwritten(
    channels: Iterable[str],
    versions: Mapping[str, Any] | None,
    stored: Collection[str] | None,
    metadata: Mapping[str, Any] | None,
) -> frozenset[str]:
    """Those of `channels` that no step had written at a checkpoint of full mode.

    Args:
        channels: names to look at.
        versions: the checkpoint's `channel_versions`.
        stored: the channels it stores a value for.
        metadata: the checkpoint's.

    """
    if not versions:
        return frozenset()
    counted = (metadata or {}).get(COUNTERS) or ()
    return frozenset(
        name
        for name in channels
        if name not in versions and name not in counted and name not in (stored or ())
    )


def unwritten_at(row: Any, channels: Iterable[str]) -> frozenset[str]:
    """`unwritten` of a `CheckpointTuple`."""
    versions, values = (row.checkpoint.get(k) for k in ("channel_versions", "channel_values"))
    return unwritten(channels, versions, values, getattr(row, "metadata", None))
