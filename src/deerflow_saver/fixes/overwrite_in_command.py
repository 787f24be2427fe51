"""An `Overwrite` in a `Command`, and another write in a `Command` before the next checkpoint.

Live, an `Overwrite` wins over every other write of its superstep. A replay drops only what
came before it. For nodes and inputs LangGraph makes the next checkpoint store a snapshot,
so that nothing is replayed; it does not look at the writes of `Command`s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch, require

__all__ = ["DEFECT"]

_LOOP = "langgraph.pregel._loop"


def _probe() -> Finding:
    from deerflow_saver.fixes._command_scenes import overwritten_by_command

    return overwritten_by_command()


def _first(
    wrapped: Callable[..., Any], loop: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Look at them after `_first`, which starts with an empty set of forced snapshots."""
    from langgraph._internal._constants import NULL_TASK_ID
    from langgraph.channels.binop import _get_overwrite
    from langgraph.channels.delta import DeltaChannel

    updated = wrapped(*args, **kwargs)
    loop._delta_channels_forced_snapshot.update(
        channel
        for task, channel, value in loop.checkpoint_pending_writes
        if task == NULL_TASK_ID
        and isinstance(loop.specs.get(channel), DeltaChannel)
        and _get_overwrite(value)[0]
    )
    return updated


def _check() -> None:
    require("langgraph._internal._constants", "NULL_TASK_ID")
    require("langgraph.channels.binop", "_get_overwrite")
    require("langgraph.pregel._checkpoint", "delta_channels_with_pending_writes")


DEFECT = Defect(
    slug="overwrite-in-command",
    symptom="a write that an Overwrite in a Command dropped is back after a reload",
    upstream=("langgraph#8821",),
    distribution="langgraph",
    probe=_probe,
    remedy=patch(
        Site(_LOOP, "PregelLoop._first", _first, takes=("input_keys", "updated_channels")),
        check=_check,
        text="Send an Overwrite from a node, as input or by update_state, not in a Command.",
    ),
    severity="corrupts",
)
