"""What a late answer writes is filed on the checkpoint it addresses, which has other children.

A run that time-travels starts a branch of its own; one that resumes does not
(`PregelLoop._first`), so an answer or a `Command`'s update addressed at a checkpoint the
thread has left is stored under it, and read by every branch that starts there. The patch
keeps such writes out of the checkpoint's delta histories (see `_holding`) and makes the
run's own child store a snapshot of the channels, as LangGraph does for other forks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch, require

__all__ = ["DEFECT"]

_LOOP = "langgraph.pregel._loop"


def _probe() -> Finding:
    from deerflow_saver.fixes._command_scenes import left_checkpoint_answered

    return left_checkpoint_answered()


def _delta(loop: Any) -> set[str]:
    from langgraph.channels.delta import DeltaChannel

    return {name for name, spec in loop.specs.items() if isinstance(spec, DeltaChannel)}


def _first(
    wrapped: Callable[..., Any], loop: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Replace the loop's `put_writes` before the run's `Command` is stored."""
    if loop._addressed_checkpoint_superseded and loop.checkpointer_put_writes:
        from langgraph.pregel._loop import AsyncPregelLoop

        from deerflow_saver.fixes._holding import Holding

        base, loaded = loop.checkpoint["id"], loop.checkpoint_pending_writes
        holding = Holding(loop.checkpointer_put_writes, base, _delta(loop), loaded)
        loop.checkpoint_pending_writes = Holding.handed_back(loaded, base)
        is_async = isinstance(loop, AsyncPregelLoop)
        loop.checkpointer_put_writes = holding.aput if is_async else holding.put
    return wrapped(*args, **kwargs)


def _put_writes(
    wrapped: Callable[..., Any], loop: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Have the channels that are written on the left checkpoint snapshot in its new child."""
    if loop._addressed_checkpoint_superseded and loop.checkpoint["id"] == loop.checkpoint_id_saved:
        writes = args[1] if len(args) > 1 else kwargs["writes"]
        written = {channel for channel, _ in writes}
        loop._delta_channels_forced_snapshot.update(_delta(loop) & written)
    return wrapped(*args, **kwargs)


def _check() -> None:
    for attribute in ("_addressed_checkpoint_superseded", "_delta_write_futs"):
        require(_LOOP, f"PregelLoop.{attribute}")
    require(_LOOP, "AsyncPregelLoop")
    require("langgraph._internal._constants", "NULL_TASK_ID")


DEFECT = Defect(
    slug="left-checkpoint-writes",
    symptom="a late answer or update at an older checkpoint shows up in the other branches",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=patch(
        Site(_LOOP, "PregelLoop._first", _first, takes=("input_keys", "updated_channels")),
        Site(_LOOP, "PregelLoop.put_writes", _put_writes, takes=("task_id", "writes")),
        check=_check,
        text='The guard refuses such writes (guard="refuse", the default). Answer old questions '
        "by resuming from the head.",
        unguarded=True,
    ),
    severity="corrupts",
)
