"""Pending writes of a checkpoint, as a copy of it has them: each with its task's new id.

A task's id is made of its checkpoint's id, and an interrupt's id of its task's. What finished
tasks have written stays pending, so it is applied once: when the step ends.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.pregel._algo import task_path_str

from deerflow_saver._serde import plain_serde
from deerflow_saver.state.linear_copy import NULL_TASK_ID
from deerflow_saver.state.questions import (
    NOT_OUTPUT,
    Task,
    Unanswerable,
    interrupt_id,
    number_of,
)

__all__ = ["TaskWrites", "Tasks", "reattached", "same_writes"]

_INTERRUPT, _RESUME = "__interrupt__", "__resume__"

Pending = Iterable[tuple[str, str, Any]]
"""`(task id, channel, value)`, as a row has them."""


class TaskWrites(NamedTuple):
    """One `put_writes`."""

    task_id: str
    writes: list[tuple[str, Any]]
    task_path: str


class Tasks(NamedTuple):
    """The tasks of a checkpoint and of its copy."""

    before: Mapping[str, Task]
    """Per task id, name and path."""
    after: Mapping[str, Task]
    spaces: tuple[str, str]
    """The namespaces of the two, each with a `|` at its end unless it is the root's."""

    def twin(self, task_id: str) -> str | None:
        """The id that a task has in the copy; None if it is none of the checkpoint's tasks."""
        task = self.before.get(task_id)
        return next((new for new, other in self.after.items() if other == task), None)


def reattached(
    pending: Pending, tasks: Tasks, ids: dict[str, str], standing: Collection[str] = ()
) -> list[TaskWrites]:
    """What to put on the copy.

    Rows of no task of the checkpoint are left out: no reader of it takes them for its state.

    Args:
        pending: the pending writes of the checkpoint.
        tasks: its tasks and the copy's.
        ids: from the ids of its subgraphs' interrupts to the new ones; its own are added.
        standing: tasks that stand in a subgraph whose waiting questions are all in `ids`. What
            else they had asked was answered, and waits no more.

    Raises:
        Unanswerable: an interrupt cannot be asked again.

    """
    found: list[TaskWrites] = []
    rows = list(pending)
    answered = any(owner == NULL_TASK_ID and name == _RESUME for owner, name, _ in rows)
    for task_id, writes in _by_task(rows).items():
        if task_id == NULL_TASK_ID:
            found.append(TaskWrites(task_id, writes, ""))
            continue
        new_id = tasks.twin(task_id)
        if new_id is not None:
            name, path = tasks.before[task_id]
            old, new = tasks.spaces
            spaces = f"{old}{name}:{task_id}", f"{new}{name}:{new_id}"
            again = _asked_again(writes, spaces, ids, answered=answered, stands=task_id in standing)
            found.append(TaskWrites(new_id, again, task_path_str(path)))
        elif any(channel == _INTERRUPT for channel, _ in writes):
            msg = f"task {task_id}, which asked, is none of the tasks the checkpoint schedules"
            raise Unanswerable(msg)
    return found


def _by_task(pending: Pending) -> dict[str, list[tuple[str, Any]]]:
    """Each task's writes, such that savers number them as they had been numbered.

    Channels that have a number of their own come last (`WRITES_IDX_MAP` of LangGraph).
    """
    found: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in sorted(pending, key=lambda row: row[1] in WRITES_IDX_MAP):
        found.setdefault(str(task_id), []).append((channel, value))
    return found


def _asked_again(
    writes: list[tuple[str, Any]],
    spaces: tuple[str, str],
    ids: dict[str, str],
    *,
    answered: bool,
    stands: bool,
) -> list[tuple[str, Any]]:
    """A task's writes, with the ids that its interrupts have in the copy.

    What a finished task had asked waits no more, so nobody asks for its id: a subgraph that has
    asked and finished cannot tell it either.
    """
    if any(channel not in NOT_OUTPUT for channel, _ in writes):
        return writes
    given: Any = next((value for channel, value in writes if channel == _RESUME), [])
    answers = (len(given) if isinstance(given, list) else 1) + answered

    def renamed(interrupt: Any) -> Any:
        if interrupt.id not in ids:
            number = number_of(interrupt, answers, spaces[0])
            if number is None and stands:
                return interrupt
            if number is None:
                msg = f"interrupt {interrupt.id} was asked by a subgraph that was not captured"
                raise Unanswerable(msg)
            ids[interrupt.id] = interrupt_id(spaces[1], number)
        twin = copy.copy(interrupt)
        twin.id = ids[interrupt.id]
        return twin

    return [
        (channel, tuple(map(renamed, _listed(value))) if channel == _INTERRUPT else value)
        for channel, value in writes
    ]


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def same_writes(serde: Any, left: Pending, right: Pending) -> bool:
    """Whether two checkpoints have the same pending writes, in whatever order of the tasks.

    Values are the same if they are equal, or stored alike: ciphers, sets and pickles may store
    one value in several ways, and not every object knows its equals.
    """
    ours, theirs = _in_order(left), _in_order(right)
    return ours.keys() == theirs.keys() and all(
        _channels(ours[task_id]) == _channels(theirs[task_id])
        and all(
            _same_value(plain_serde(serde), one, other)
            for (_, one), (_, other) in zip(ours[task_id], theirs[task_id], strict=True)
        )
        for task_id in ours
    )


def _in_order(pending: Pending) -> dict[str, list[tuple[str, Any]]]:
    """Each task's writes by channel; several to one channel stay in their order."""
    return {
        task_id: sorted(writes, key=lambda write: write[0])
        for task_id, writes in _by_task(pending).items()
    }


def _channels(writes: list[tuple[str, Any]]) -> list[str]:
    return [channel for channel, _ in writes]


def _same_value(serde: Any, one: Any, other: Any) -> bool:
    if serde.dumps_typed(one) == serde.dumps_typed(other):
        return True
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - arrays and other objects raise what they like
        return False
