"""The checkpoint before a message: a walk along the parents, never by age.

What a thread holds is what its ancestors wrote. A checkpoint that is merely older may belong
to a branch the thread has left, so the order of time is used only where a parent link was
never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deerflow_saver._plan import adrive, drive
from deerflow_saver.channel_mode.gate import async_calls, sync_calls
from deerflow_saver.state import ancestry
from deerflow_saver.state.ancestry import Target
from deerflow_saver.state.lineage_walk import find_base_plan, find_plan, settled_before

__all__ = [
    "afind_base_before_message",
    "afind_checkpoint_before_message",
    "find_base_before_message",
    "find_checkpoint_before_message",
    "find_checkpoint_before_message_chronologically",
]

SCAN_LIMIT = 400
"""Checkpoints that a search looks at, unless it is told otherwise."""


def find_checkpoint_before_message(
    accessor: Any,
    head_checkpoint: Any,
    message_id: str,
    *,
    max_depth: int = SCAN_LIMIT,
    channel: str = "messages",
) -> Any:
    """The nearest settled ancestor that does not hold a message: where to branch before it.

    The walk reads stored rows; of a delta channel it materialises only checkpoints whose own
    writes may concern the message, and those that may be the answer. Checkpoints stored
    beside the conversation (a run's duration, a title, a goal) are stepped over.

    Args:
        accessor: a `CheckpointStateAccessor`, or what has its `get`, `checkpointer` and `mode`.
        head_checkpoint: the materialised checkpoint to begin at, which holds the message.
        message_id: the message's id.
        max_depth: ancestors to look at, and as many again to step over.
        channel: the channel of messages.

    Returns:
        The materialised checkpoint; None if the thread begins with the message, so that there
        is nothing before it.

    Raises:
        CheckpointParentMissingError: the lineage ends at a checkpoint that is not the first.
        CheckpointLineageIntegrityError: the head does not hold the message, or more than
            once; a parent is not stored, or another one is answered; the lineage is a cycle,
            or longer than `max_depth`.
        CheckpointModeMismatchError: full mode met a delta checkpoint.

    """
    target = Target(message_id, channel)
    return drive(find_plan(accessor, head_checkpoint, target, max_depth), _sync(accessor))


async def afind_checkpoint_before_message(
    accessor: Any,
    head_checkpoint: Any,
    message_id: str,
    *,
    max_depth: int = SCAN_LIMIT,
    channel: str = "messages",
) -> Any:
    """`find_checkpoint_before_message` on the async face, through `accessor.aget`."""
    target = Target(message_id, channel)
    return await adrive(find_plan(accessor, head_checkpoint, target, max_depth), _async(accessor))


def find_base_before_message(
    accessor: Any,
    head_checkpoint: Any,
    message_id: str,
    *,
    max_depth: int = SCAN_LIMIT,
    channel: str = "messages",
) -> Any:
    """As `find_checkpoint_before_message`; by time where a parent link was never stored.

    Raises:
        CheckpointLineageIntegrityError: as there, or the message is in none of the
            `max_depth` checkpoints before the head.
        CheckpointModeMismatchError: full mode met a delta checkpoint.

    """
    target = Target(message_id, channel)
    return drive(find_base_plan(accessor, head_checkpoint, target, max_depth), _sync(accessor))


async def afind_base_before_message(
    accessor: Any,
    head_checkpoint: Any,
    message_id: str,
    *,
    max_depth: int = SCAN_LIMIT,
    channel: str = "messages",
) -> Any:
    """`find_base_before_message` on the async face."""
    target = Target(message_id, channel)
    return await adrive(
        find_base_plan(accessor, head_checkpoint, target, max_depth), _async(accessor)
    )


def find_checkpoint_before_message_chronologically(
    checkpoints_newest_first: Iterable[Any], message_id: str, *, channel: str = "messages"
) -> tuple[Any, bool]:
    """The settled checkpoint that is older than the first one to hold a message.

    It may belong to another branch: for threads whose parent links were never stored.

    Returns:
        The checkpoint, or None if there is none, and whether the message was seen at all.

    """
    return settled_before(checkpoints_newest_first, Target(message_id, channel))


def _sync(accessor: Any) -> Mapping[str, Any]:
    saver = accessor.checkpointer

    def older(row: Any) -> bool:
        return any(True for _ in saver.list(_thread_of(row), before=row.config, limit=1))

    return {
        **sync_calls(saver),
        "state": accessor.get,
        "older": older,
        "states": lambda asked: accessor.history(**asked),
    }


def _async(accessor: Any) -> Mapping[str, Any]:
    saver = accessor.checkpointer

    async def older(row: Any) -> bool:
        return bool(
            [found async for found in saver.alist(_thread_of(row), before=row.config, limit=1)]
        )

    return {
        **async_calls(saver),
        "state": accessor.aget,
        "older": older,
        "states": lambda asked: accessor.ahistory(**asked),
    }


def _thread_of(row: Any) -> Any:
    identity = ancestry.identity_of(row.config)
    return identity.thread() if identity else row.config
