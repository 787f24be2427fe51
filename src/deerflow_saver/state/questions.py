"""Interrupts of a checkpoint, as its copy asks them again.

A task's id is made of its checkpoint's id, and an interrupt's id of its task's. So a copy of an
interrupted checkpoint gets the questions under new ids, with the answers that a task had had
before the question it stopped at.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from langgraph import types
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt

from deerflow_saver.state.linear_copy import NULL_TASK_ID

__all__ = [
    "NOT_OUTPUT",
    "Questions",
    "Task",
    "Unanswerable",
    "interrupt_id",
    "number_of",
    "questions_of",
    "refuse_idle_answer",
    "scheduled_tasks",
    "translated",
]

_INTERRUPT = "__interrupt__"
_RESUME = "__resume__"
NOT_OUTPUT = frozenset({_INTERRUPT, _RESUME, "__error__", "__error_source_node__", "__scheduled__"})
"""Channels that a task which has not finished may have written."""


Stored = tuple[Any, Any]
"""A checkpoint and its metadata."""
Task = tuple[str, Any]
"""A task's name and path."""
_LENT_CHECKPOINTER = "__pregel_checkpointer"
"""LangGraph's config key by which a parent graph lends a subgraph its saver."""


class Unanswerable(Exception):  # noqa: N818 - the plan makes an error of it
    """Why the questions cannot be asked again."""


class Questions(NamedTuple):
    """What a copy of an interrupted checkpoint asks."""

    writes: Mapping[str, list[tuple[str, Any]]]
    """Per task id of the copy, its pending writes."""
    ids: Mapping[str, str]
    """From the interrupts' old ids to the new ones."""


def questions_of(
    graph: Any, pending: Iterable[tuple[str, str, Any]], old: Stored, new: Stored, serde: Any
) -> Questions:
    """The questions among `pending` writes, as the copy asks them.

    Args:
        graph: the compiled graph.
        pending: the pending writes of the checkpoint that is copied.
        old: `(checkpoint, metadata)` of the copied one; of its content only the tasks count.
        new: `(checkpoint, metadata)` of the copy.
        serde: how values are stored.

    Raises:
        Unanswerable: a question came from a subgraph, whose state is not part of the copy, or
            it cannot be told which of a task's questions it was.

    """
    rows = list(pending)
    asked = {task_id: value for task_id, channel, value in rows if channel == _INTERRUPT}
    if not asked:
        return Questions({}, {})
    before, after = scheduled_tasks(graph, old, serde), scheduled_tasks(graph, new, serde)
    places = {place: task_id for task_id, place in after.items()}
    writes: dict[str, list[tuple[str, Any]]] = {}
    ids: dict[str, str] = {}
    for task_id, interrupts in asked.items():
        place = before.get(task_id)
        if place is None or place not in places:
            msg = f"task {task_id}, which asked, is none of the tasks the checkpoint schedules"
            raise Unanswerable(msg)
        new_id = places[place]
        own = [(channel, value) for owner, channel, value in rows if owner == task_id]
        spaces = f"{place[0]}:{task_id}", f"{place[0]}:{new_id}"
        last = _last_answer(rows) if len(asked) == 1 else None
        writes[new_id] = _asked_again(interrupts, own, last, spaces, ids)
    return Questions(writes, ids)


def refuse_idle_answer(graph: Any, given: Any, new: Stored, serde: Any) -> None:
    """Refuse to answer where nothing was asked and nothing would run that could ask.

    Raises:
        Unanswerable: `given` is such an answer.

    """
    if getattr(given, "resume", None) is not None and not scheduled_tasks(graph, new, serde):
        msg = "no interrupt waits there, and no task is left to run"
        raise Unanswerable(msg)


def scheduled_tasks(
    graph: Any, stored: Stored, serde: Any, checkpoint_ns: str = ""
) -> dict[str, Task]:
    """The tasks that LangGraph schedules at a checkpoint of a namespace, by their ids."""
    checkpoint, metadata = stored
    scratch = InMemorySaver(serde=serde)
    names = {"thread_id": "scratch", "checkpoint_ns": checkpoint_ns}
    place: Any = {"configurable": names}
    scratch.put(place, checkpoint, metadata, checkpoint["channel_versions"])
    reader: Any = copy.copy(graph)
    reader.checkpointer = scratch
    if checkpoint_ns:  # else LangGraph looks for the subgraph of that name
        place = {"configurable": {**names, _LENT_CHECKPOINTER: scratch}}
    # Apart from the run that this may be called in, whose saver the graph would use
    state = contextvars.Context().run(reader.get_state, place)
    return {task.id: (task.name, task.path) for task in state.tasks}


def _last_answer(rows: list[tuple[str, str, Any]]) -> list[Any] | None:
    """The answer given last, in a list, if it was not given by an id."""
    found = [v for owner, channel, v in rows if owner == NULL_TASK_ID and channel == _RESUME]
    return found[:1] or None


def _asked_again(
    interrupts: Any,
    own: list[tuple[str, Any]],
    last: list[Any] | None,
    spaces: tuple[str, str],
    ids: dict[str, str],
) -> list[tuple[str, Any]]:
    """The pending writes that make the new task stop where the old one did."""
    answers: list[Any] = next((_listed(v) for channel, v in own if channel == _RESUME), [])
    if all(channel in NOT_OUTPUT for channel, _ in own):
        last = None  # whether the last answer was for this task is not known before it finishes
    again, count = [], 0
    for interrupt in interrupts:
        number = number_of(interrupt, len(answers), spaces[0])
        count = max(count, _answers_before(interrupt, number, answers, last))
        twin: Interrupt = copy.copy(interrupt)
        twin.id = interrupt_id(spaces[1], number or 0)
        ids[interrupt.id] = twin.id
        again.append(twin)
    writes: list[tuple[str, Any]] = [(_INTERRUPT, tuple(again))]
    return [*writes, (_RESUME, answers[:count])] if count else writes


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def number_of(interrupt: Interrupt, answers: int, namespace: str) -> int | None:
    """Which of its task's questions it was, by its id; None if the id is of another graph's."""
    for number in range(answers + 1):
        if interrupt.id == interrupt_id(namespace, number):
            return number
    return None


def _answers_before(
    interrupt: Interrupt, number: int | None, answers: list[Any], last: list[Any] | None
) -> int:
    """How many answers the task had had when it asked.

    Where ids do not tell, the last answer does: savers differ in whether they have added it to
    those that the task had when it stopped.
    """
    if number is None:
        msg = f"interrupt {interrupt.id} was asked by a subgraph, whose state the copy has not"
        raise Unanswerable(msg)
    if number or not answers or _NUMBERED:
        return number
    if last is None:
        msg = f"interrupt {interrupt.id}: which of its task's answers came before cannot be told"
        raise Unanswerable(msg)
    return len(answers) - (answers[-1:] == last)


_NUMBERED = hasattr(types, "_interrupt_id")
"""Whether this release gives each of a task's questions an id of its own."""


def interrupt_id(namespace: str, number: int) -> str:
    """The id of a task's question `number`; `namespace` is the task's own."""
    if _NUMBERED:
        return str(types._interrupt_id(namespace, number))  # noqa: SLF001
    return Interrupt.from_ns(None, namespace).id


def translated(given: Any, questions: Questions) -> Any:
    """An input that answers the old questions, as an answer to the new ones.

    Raises:
        Unanswerable: it answers a question that was not asked there, or does not say which
            of several it answers.

    """
    if not isinstance(given, Command) or given.resume is None:
        return given
    if not _is_map(given.resume):
        if len(questions.ids) > 1:
            msg = "several interrupts wait there: answer them by their ids"
            raise Unanswerable(msg)
        return given
    unknown = sorted(set(given.resume) - set(questions.ids))
    if unknown:
        msg = f"no interrupt {unknown[0]} waits there, but {sorted(questions.ids)}"
        raise Unanswerable(msg)
    answers = {questions.ids[key]: value for key, value in given.resume.items()}
    twin = copy.copy(given)
    object.__setattr__(twin, "resume", answers)  # frozen, and a subclass may add fields
    return twin


def _is_map(resume: Any) -> bool:
    """As LangGraph tells answers by id from one answer that is a dict."""
    return isinstance(resume, dict) and bool(resume) and all(_is_id(key) for key in resume)


def _is_id(key: Any) -> bool:
    digits = frozenset("0123456789abcdef")
    return isinstance(key, str) and len(key) == 32 and digits.issuperset(key)  # noqa: PLR2004
