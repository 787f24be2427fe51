"""`update_state` as a task that has finished in a paused step is lost.

The update is filed under the task's own id (`bulk_update_state`), and savers keep the first
value of a (task id, place). The patch files it under a free id, which a delta history reads
all the same.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID, uuid5

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch, require

__all__ = ["DEFECT"]

_MAIN = "langgraph.pregel.main"
_TAKES = ("saved", "writes")


def _probe() -> Finding:
    from deerflow_saver.fixes._command_scenes import finished_task_updated

    return finished_task_updated()


def _store(
    wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Rename the tasks whose places are taken; the async function returns its coroutine."""
    call = inspect.signature(wrapped).bind(*args, **kwargs)
    saved = call.arguments["saved"]
    if saved is not None:
        taken = _taken(saved)
        call.arguments["writes"] = [
            (_free(task_id, taken, saved.checkpoint["id"]), writes, task)
            for task_id, writes, task in call.arguments["writes"]
        ]
    return wrapped(*call.args, **call.kwargs)


def _taken(saved: Any) -> set[str]:
    """Tasks that hold places on the checkpoint; special writes have places of their own."""
    from langgraph.checkpoint.base import WRITES_IDX_MAP

    return {
        task for task, channel, _ in saved.pending_writes or () if channel not in WRITES_IDX_MAP
    }


def _free(task_id: str, taken: Collection[str], checkpoint_id: str) -> str:
    if task_id not in taken:
        return task_id
    others = (str(uuid5(UUID(checkpoint_id), f"{task_id}:{i}")) for i in itertools.count())
    return next(other for other in others if other not in taken)


def _check() -> None:
    require("langgraph.checkpoint.base", "WRITES_IDX_MAP")


DEFECT = Defect(
    slug="finished-task-update",
    symptom="update_state as a task that has finished returns a config, and the update is nowhere",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=patch(
        Site(_MAIN, "_store_or_fork_delta_writes", _store, takes=_TAKES),
        Site(_MAIN, "_astore_or_fork_delta_writes", _store, takes=_TAKES),
        check=_check,
        text="The guard refuses such an update (WriteSlotTakenError). Update as a node that has "
        "not finished in this step, or finish the step first.",
    ),
    severity="loses",
)
