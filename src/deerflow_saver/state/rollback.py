"""Taking a thread back to where it was before a run: after a cancellation, a failed edit.

`capture_rollback_point` reads the head before the run. `restore` puts that checkpoint's content
on top of whatever the run left, with its tasks and their questions. What the run did stays in
the history.
"""

from __future__ import annotations

import logging
from typing import Any

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.channel_mode.gate import async_calls, sync_calls
from deerflow_saver.channel_mode.marker import with_checkpoint_mode
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.compiled import refuse_graph
from deerflow_saver.state.conditional import conditional
from deerflow_saver.state.locks import Hold, ThreadLock, aholding, holding
from deerflow_saver.state.point_copy import Rollback
from deerflow_saver.state.removing import Removal, removing
from deerflow_saver.state.rollback_point import Place, RollbackPoint, capturing
from deerflow_saver.state.rolling_back import rolling_back
from deerflow_saver.state.steps import RUNTIME, async_rollback, sync_rollback

__all__ = [
    "RollbackPoint",
    "acapture_rollback_point",
    "arestore",
    "capture_rollback_point",
    "restore",
]

_OF_A_RUN = frozenset({"checkpoint_id", "checkpoint_map", "run_id"})
"""Names in a config that select a checkpoint, or say whose it is."""

logger = logging.getLogger("deerflow_saver")


def capture_rollback_point(
    accessor: Any, config: RunnableConfig, *, lock: ThreadLock | Hold | None = None
) -> RollbackPoint | None:
    """Take note of a thread's head before a run; None if the thread is empty.

    One row is read, and one more for each subgraph that has stopped in the middle. No value of
    a delta channel is made, and nothing is copied.

    Args:
        accessor: a `CheckpointStateAccessor`.
        config: names the thread; a checkpoint that it selects is not looked at.
        lock: the thread's lock, or the caller's hold of it; by default the process's lock.

    Raises:
        CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.
        ThreadLockError: the lock could not be had or kept.
        InvalidConfigError: `config` names no thread, or a subgraph's namespace.

    """
    thread_id = _thread_of(config)
    if accessor.checkpointer is None:
        return None
    with holding(lock, thread_id, "capture"):
        return drive(capturing(_place(accessor, config)), sync_calls(accessor.checkpointer))


async def acapture_rollback_point(
    accessor: Any, config: RunnableConfig, *, lock: ThreadLock | Hold | None = None
) -> RollbackPoint | None:
    """`capture_rollback_point` on the async face."""
    thread_id = _thread_of(config)
    if accessor.checkpointer is None:
        return None
    async with aholding(lock, thread_id, "capture"):
        plan = capturing(_place(accessor, config))
        return await adrive(plan, async_calls(accessor.checkpointer))


def restore(
    accessor: Any,
    rollback_point: RollbackPoint | None,
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
    snapshot_capture_failed: bool = False,
    config: RunnableConfig | None = None,
    lock: ThreadLock | Hold | None = None,
) -> bool:
    """Take a thread back to a rollback point.

    The run, and whatever it has under way, must have ended. State, tasks and questions are then
    as before; a question waits under a new id. A thread that was empty before the run is
    deleted if all that is there is the run's own: rows with its `run_id` in their metadata.

    Args:
        accessor: a `CheckpointStateAccessor`; None: there is nothing to restore with.
        rollback_point: what was captured; None: the thread was empty.
        thread_id: the thread, needed if there is no point.
        run_id: the run, as in its config's metadata; names it in errors, too.
        snapshot_capture_failed: nothing is known of the thread before the run, so nothing is
            done.
        config: the run's config, for a saver that chooses rows by more than the thread.
        lock: the thread's lock, or the caller's hold of it; by default the process's lock.

    Returns:
        Whether the thread is as before the run.

    Raises:
        RollbackError: it cannot be taken back.
        RefusedWriteError: somebody else moved the head meanwhile.
        CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.
        ThreadLockError: the lock could not be had or kept.
        InvalidConfigError: neither `thread_id` nor the point names a thread, or two.

    Whatever it raises, the thread is as it was.

    """
    if _hopeless(accessor, rollback_point, run_id, failed=snapshot_capture_failed):
        return False
    thread_id = _named(rollback_point, thread_id)
    place = _config(accessor, thread_id, config)
    saver, plan = _restoring(accessor, rollback_point, place, run_id)
    with holding(lock, thread_id, _owner(run_id)) as hold:
        return drive(plan, sync_rollback(accessor.checkpointer, saver, hold))


async def arestore(
    accessor: Any,
    rollback_point: RollbackPoint | None,
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
    snapshot_capture_failed: bool = False,
    config: RunnableConfig | None = None,
    lock: ThreadLock | Hold | None = None,
) -> bool:
    """`restore` on the async face."""
    if _hopeless(accessor, rollback_point, run_id, failed=snapshot_capture_failed):
        return False
    thread_id = _named(rollback_point, thread_id)
    place = _config(accessor, thread_id, config)
    saver, plan = _restoring(accessor, rollback_point, place, run_id)
    async with aholding(lock, thread_id, _owner(run_id)) as hold:
        return await adrive(plan, async_rollback(accessor.checkpointer, saver, hold))


# -- what is asked --------------------------------------------------------------------------------


def _thread_of(config: RunnableConfig) -> str:
    names = configurable(config)
    if names.get("thread_id") is None or names.get("checkpoint_ns"):
        msg = f"config must name a thread, and no subgraph's namespace; got {config!r}"
        raise InvalidConfigError(msg)
    return str(names["thread_id"])


def _config(accessor: Any, thread_id: str, config: RunnableConfig | None) -> RunnableConfig:
    """The root namespace of a thread, with what else a saver may choose rows by."""
    refuse_graph(accessor)
    names = {
        name: value
        for name, value in configurable(config).items()
        if name not in _OF_A_RUN and not name.startswith("__")
    }
    names |= {"thread_id": thread_id, "checkpoint_ns": ""}
    return with_checkpoint_mode({"configurable": names}, accessor.mode)


def _place(accessor: Any, config: RunnableConfig) -> Place:
    settled = _config(accessor, _thread_of(config), config)
    return Place(accessor.graph, settled, accessor.mode)


def _hopeless(
    accessor: Any, point: RollbackPoint | None, run_id: str | None, *, failed: bool
) -> bool:
    """Whether there is nothing to restore with, or nothing to restore."""
    if accessor is None or accessor.checkpointer is None:
        logger.info("run %s: nothing to roll back, there is no checkpointer", run_id)
    elif failed:
        logger.warning("run %s: not rolled back, its rollback point could not be captured", run_id)
    elif point is not None and point.checkpoint_id is None:
        logger.warning("run %s: not rolled back, its rollback point names no checkpoint", run_id)
    else:
        return False
    return True


def _named(point: RollbackPoint | None, thread_id: str | None) -> str:
    """The thread to restore."""
    own = None if point is None else point.thread_id
    if own is None and thread_id is None:
        msg = "restore needs the thread_id of a thread that was empty before the run"
        raise InvalidConfigError(msg)
    if own is not None and thread_id is not None and str(thread_id) != own:
        msg = f"the rollback point is of thread {own!r}, not of thread {thread_id!r}"
        raise InvalidConfigError(msg)
    return str(own if thread_id is None else thread_id)


def _restoring(
    accessor: Any, point: RollbackPoint | None, config: RunnableConfig, run_id: str | None
) -> tuple[Any, Plan[bool]]:
    """The saver to go through, and the plan."""
    if point is None:
        return accessor.checkpointer, removing(Removal(config, run_id))
    # With the msgpack types that the graph's own reads and writes allow
    allow = getattr(accessor.graph, "_apply_checkpointer_allowlist", lambda saver: saver)
    saver = conditional(allow(accessor.checkpointer))
    forks = getattr(getattr(saver, "guard", None), "policy", None) != "refuse-all"
    config["configurable"][RUNTIME] = object()
    asked = Rollback(accessor.graph, saver, config, point, accessor.mode, run_id, forks)
    asked.refuse_unusable()
    return saver, rolling_back(asked)


def _owner(run_id: str | None) -> str:
    return "a rollback" if run_id is None else f"the rollback of run {run_id}"
