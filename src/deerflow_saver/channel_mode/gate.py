"""The gate: a full process neither reads nor writes a thread that is stored as deltas.

It is one-sided. A delta process reads a full thread as it is: the stored value becomes the
seed of its history. A full process would take a delta channel's missing value for an empty
one, and its next checkpoint would make the loss final.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.channel_mode.freeze import CheckpointChannelMode, check_mode
from deerflow_saver.channel_mode.marker import (
    Channels,
    absent_channels,
    checkpoint_tuple_uses_delta,
    shows_delta,
    state_snapshot_uses_delta,
)
from deerflow_saver.errors import CheckpointModeMismatchError

__all__ = [
    "aensure_checkpoint_mode_compatible",
    "async_calls",
    "ensure_checkpoint_mode_compatible",
    "ensured",
    "judge_row",
    "mismatch_at",
    "raise_if_checkpoint_tuple_incompatible",
    "raise_if_snapshot_incompatible",
    "sync_calls",
]

Saver = BaseCheckpointSaver[Any]


def raise_if_snapshot_incompatible(snapshot: Any, mode: CheckpointChannelMode) -> None:
    """Refuse a materialised `StateSnapshot` of a delta thread in full mode.

    Raises:
        CheckpointModeMismatchError: `mode` is full and the snapshot shows a delta thread.
        InvalidConfigError: `mode` is none.

    """
    if check_mode(mode) == "full" and state_snapshot_uses_delta(snapshot):
        raise mismatch_at(getattr(snapshot, "config", None))


def raise_if_checkpoint_tuple_incompatible(
    row: Any, mode: CheckpointChannelMode, *, channels: Channels | None = None
) -> None:
    """Refuse a `CheckpointTuple` of a delta thread in full mode, without asking anybody.

    A channel with a version and no value is taken for a delta channel, unless `channels`
    (a compiled graph's) knows it as one that stores none.

    Raises:
        CheckpointModeMismatchError: `mode` is full and the tuple shows a delta thread.
        InvalidConfigError: `mode` is none.

    """
    if check_mode(mode) == "full" and checkpoint_tuple_uses_delta(row, channels):
        raise mismatch_at(getattr(row, "config", None))


def ensure_checkpoint_mode_compatible(
    checkpointer: Saver,
    config: RunnableConfig,
    mode: CheckpointChannelMode,
    *,
    channels: Channels | None = None,
) -> None:
    """Before a write in full mode: refuse it if the thread is delta.

    In delta mode nothing is read. In full mode the head of the config's namespace is read,
    and the checkpoint the config selects if that is another. Reading and a later write are
    two steps; behind a `CachedHistorySaver` with a guard, a write whose config carries the
    mode is judged again in one step with it.

    Args:
        checkpointer: the saver to be written to.
        config: the config of the write.
        mode: the mode of this process.
        channels: the channels of the compiled graph, where there is one.

    Raises:
        CheckpointModeMismatchError: the thread needs delta mode.
        InvalidConfigError: `mode` is none.

    """
    if check_mode(mode) == "full":
        drive(ensured(config, channels), sync_calls(checkpointer))


async def aensure_checkpoint_mode_compatible(
    checkpointer: Saver,
    config: RunnableConfig,
    mode: CheckpointChannelMode,
    *,
    channels: Channels | None = None,
) -> None:
    """`ensure_checkpoint_mode_compatible` on the async face."""
    if check_mode(mode) == "full":
        await adrive(ensured(config, channels), async_calls(checkpointer))


def sync_calls(checkpointer: Any) -> Mapping[str, Callable[[Any], Any]]:
    """The operations of the gate's plans on a saver's sync face."""
    return {
        "get_tuple": checkpointer.get_tuple,
        "history": lambda asked: checkpointer.get_delta_channel_history(**asked),
    }


def async_calls(checkpointer: Any) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """The operations of the gate's plans on a saver's async face."""
    return {
        "get_tuple": checkpointer.aget_tuple,
        "history": lambda asked: checkpointer.aget_delta_channel_history(**asked),
    }


def ensured(config: RunnableConfig, channels: Channels | None) -> Plan[None]:
    """`ensure_checkpoint_mode_compatible` in full mode, as a plan."""
    selected = configurable(config).get("checkpoint_id")
    head = yield "get_tuple", _head_of(config)
    yield from judge_row(head, channels)
    if selected and configurable(getattr(head, "config", None)).get("checkpoint_id") != selected:
        row = yield "get_tuple", config
        yield from judge_row(row, channels)


def _head_of(config: RunnableConfig) -> RunnableConfig:
    if not configurable(config).get("checkpoint_id"):
        return config
    names = {
        name: value
        for name, value in configurable(config).items()
        if name not in {"checkpoint_id", "checkpoint_map"}
    }
    return {**config, "configurable": names}


def judge_row(row: Any, channels: Channels | None = None) -> Plan[None]:
    """Refuse a `CheckpointTuple` of a delta thread; in doubt, ask the saver for the history.

    Where only a channel without a value speaks for delta, its history decides: a delta
    channel's value is in writes that no checkpoint has stored the result of. A channel that
    is empty by design has none since it was last stored, or only writes that were never
    applied on this line: those of a branch that was left.

    Raises:
        CheckpointModeMismatchError: it belongs to a delta thread.

    """
    if row is None:
        return
    certain, doubtful = absent_channels(row, channels)
    delta = shows_delta(row) or bool(certain)
    if doubtful and not delta:
        histories = yield "history", {"config": row.config, "channels": list(doubtful)}
        delta = any(isinstance(h.get("seed"), _DeltaSnapshot) for h in histories.values())
        written = {name for name, history in histories.items() if history.get("writes")}
        delta = delta or (yield from _applied(row, written))
    if delta:
        raise mismatch_at(getattr(row, "config", None))


def _applied(row: Any, names: set[str]) -> Plan[bool]:
    """Whether a write to one of the channels became part of a checkpoint that does not store it.

    Applying a write gives its channel a new version (`apply_writes` of LangGraph).
    """
    while names and row.parent_config:
        parent = yield "get_tuple", row.parent_config
        if parent is None:
            return True  # it cannot be told any more
        now, before = (shown.checkpoint["channel_versions"] for shown in (row, parent))
        written = {channel for _, channel, _ in parent.pending_writes or ()}
        if any(now.get(name) != before.get(name) for name in names & written):
            return True
        names = names - parent.checkpoint["channel_values"].keys()
        row = parent
    return False


def mismatch_at(config: Any) -> CheckpointModeMismatchError:
    """The error that a full process met a delta thread at `config`."""
    names = configurable(config)
    thread_id = names.get("thread_id")
    return CheckpointModeMismatchError(
        thread_id=None if thread_id is None else str(thread_id),
        checkpoint_ns=names.get("checkpoint_ns") or "",
        checkpoint_id=names.get("checkpoint_id"),
    )
