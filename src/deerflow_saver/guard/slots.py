"""Whether a place among a task's stored writes is taken by something else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.pregel import main

from deerflow_saver.guard.fence import Plain, Row

__all__ = ["lost_channels"]

_PENDING_CHANNELS_SNAPSHOT = hasattr(main, "_update_task_id")
"""Whether the installed LangGraph forces a snapshot of channels with pending writes.

It does from 1.2.13 on, but of those alone that were pending before an update's superstep:
until 1.2.15, the updates of one superstep shared a task id and lost each other's writes.
"""

Writes = Sequence[tuple[str, Any]]


def lost_channels(
    serde: Any, stored: Iterable[Row], task_id: str, writes: Writes, delta: Iterable[str]
) -> tuple[str, ...]:
    """The delta channels whose writes would be lost to a different value stored in their place.

    A channel with any write stored on the checkpoint is left alone where LangGraph
    snapshots such channels in the next checkpoint: there the update shows, stored or not.
    """
    stored = list(stored)
    taken = {row.idx: row for row in stored if row.task_id == task_id and row.idx >= 0}
    if not taken:
        return ()
    wanted = frozenset(delta)
    if _PENDING_CHANNELS_SNAPSHOT:
        wanted -= {row.channel for row in stored}
    return tuple(
        channel
        for idx, (channel, value) in enumerate(writes)
        if channel in wanted and idx in taken and not _same(serde, taken[idx], channel, value)
    )


def _same(serde: Any, row: Row, channel: str, value: Any) -> bool:
    """Whether the stored write is this one; where that cannot be told, it is taken to be."""
    if row.channel != channel:
        return False
    try:
        packed = serde.dumps_typed(value)
        if isinstance(row.value, Plain):
            stored = row.value.value
        else:
            kind, data = row.value
            if (kind, bytes(data or b"")) == (packed[0], bytes(packed[1] or b"")):
                return True
            stored = serde.loads_typed((kind, data))
        given = serde.loads_typed(packed)  # both have been through the serialiser then
        try:
            if bool(stored == given):
                return True
        except Exception:  # noqa: BLE001, S110 - arrays and the like have no plain equality
            pass
        return bool(_bytes(serde, stored) == _bytes(serde, given))
    except Exception:  # noqa: BLE001 - what cannot be compared must not be refused
        return True


def _bytes(serde: Any, value: Any) -> Any:
    while hasattr(serde, "cipher") and hasattr(serde, "serde"):  # encryption differs every time
        serde = serde.serde
    return serde.dumps_typed(value)
