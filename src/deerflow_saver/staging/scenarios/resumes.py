"""Late answers: a resume at a checkpoint the thread has left stays out of the other branch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from langgraph.types import Command, interrupt

from deerflow_saver.staging.scenarios.graphs import asking, both, chain, fan, writing
from deerflow_saver.staging.scenarios.scenario import Finding, Scenario, compared
from deerflow_saver.staging.scenarios.stage import Config, Stage

__all__ = ["SCENARIOS"]

_SLUG = "left-checkpoint-writes"


def _paused(stage: Stage, durability: str) -> tuple[Any, Config, Config]:
    """A thread whose node asks its user; and where it stands."""
    graph = stage.compile(chain(ask=asking(), z=writing("z")))
    thread = stage.thread()
    stage.run(graph, both("in1"), thread, durability)
    return graph, thread, stage.head(graph, thread)


def _update_at_left(stage: Stage, durability: str) -> Finding:
    graph, thread, paused = _paused(stage, durability)
    stage.run(graph, Command(resume="A"), thread, durability)
    old = stage.head(graph, thread)
    stage.run(graph, Command(resume="B", update=both("U")), paused, durability)
    return compared({"old": stage.values(graph, old), "new": stage.values(graph, thread)})


def _answer_at_left(stage: Stage, durability: str) -> Finding:
    graph, thread, paused = _paused(stage, durability)
    stage.run(graph, both("in2"), thread, durability)
    left = stage.head(graph, thread)
    stage.run(graph, Command(resume="B"), paused, durability)
    return compared({"left": stage.values(graph, left), "new": stage.values(graph, thread)})


def _second_answer(stage: Stage, durability: str) -> Finding:
    graph, thread, paused = _paused(stage, durability)
    stage.run(graph, Command(resume="A"), thread, durability)
    old = stage.head(graph, thread)
    stage.run(graph, Command(resume="B"), paused, durability)
    return compared({"old": stage.values(graph, old), "new": stage.values(graph, thread)})


def _failing_answer(stage: Stage) -> Finding:
    """Exit durability: the resumed step fails, after a sibling of the failing task finished."""

    def late(_state: Any) -> Any:
        interrupt("question")
        raise RuntimeError

    graph = stage.compile(fan(None, None, p1=asking("p1"), p2=late))
    return _flushed(stage, graph)


def _flushed(stage: Stage, graph: Any) -> Finding:
    thread = stage.thread()
    stage.run(graph, both("in1"), thread, "exit")
    paused = stage.ask(graph, "get_state", thread)
    stage.run(graph, both("in2"), thread, "exit")
    left = stage.head(graph, thread)
    answers = {question.id: "B" for task in paused.tasks for question in task.interrupts}
    with suppress(RuntimeError):
        stage.run(graph, Command(resume=answers), paused.config, "exit")
    return compared({"left": stage.values(graph, left)})


def _by_durability() -> Iterator[Scenario]:
    plays = {
        "H1 Command(resume, update) at a superseded checkpoint leaks the update into the other "
        "branch": _update_at_left,
        "H2 Command(resume) at a paused checkpoint the thread has left leaks the answer's "
        "writes": _answer_at_left,
        "H2b second answer to the same question at an older checkpoint": _second_answer,
    }
    for durability in ("sync", "async", "exit"):
        for name, play in plays.items():
            yield Scenario(
                f"{name} [{durability}]",
                _SLUG,
                partial(play, durability=durability),
            )


SCENARIOS = (
    *_by_durability(),
    Scenario(
        "H2x exit durability: resume at a left checkpoint fails half-way; the finished sibling's "
        "write stays on the shared base",
        _SLUG,
        _failing_answer,
    ),
)
