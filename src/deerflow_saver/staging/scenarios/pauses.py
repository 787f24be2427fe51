"""Steps that are left half-finished: what was dropped stays dropped, what was added stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from langgraph.graph import END
from langgraph.types import Command, Overwrite

from deerflow_saver.staging.scenarios.graphs import (
    asking,
    asking_beside,
    both,
    chain,
    fan,
    loop_free,
    writing,
)
from deerflow_saver.staging.scenarios.scenario import Finding, Scenario, compared, repeated
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]

_HALF = "half-finished-step"


def _new_input(stage: Stage, durability: str) -> Finding:
    graph, thread = stage.compile(asking_beside()), stage.thread()
    for given in ("in", "in2"):
        stage.run(graph, both(given), thread, durability)
    return compared(stage.every(graph, thread))


def _update(stage: Stage, durability: str) -> Finding:
    graph, thread = stage.compile(asking_beside()), stage.thread()
    stage.run(graph, both("in"), thread, durability)
    stage.update(graph, thread, both("U"), "a")
    return compared({"cp0": stage.values(graph, thread)})


def _ended(stage: Stage) -> Finding:
    graph, thread = stage.compile(asking_beside()), stage.thread()
    stage.run(graph, both("in"), thread)
    stage.update(graph, thread, None, END)
    return compared({"reload": stage.values(graph, thread)})


def _failed(stage: Stage) -> Finding:
    failures = iter([True])

    def failing(_state: Any) -> Any:
        if next(failures, False):
            raise RuntimeError
        return both("f2")

    graph = stage.compile(fan(None, None, f1=writing("f1"), f2=failing))
    thread = stage.thread()
    with suppress(RuntimeError):
        stage.run(graph, both("in1"), thread)
    stage.run(graph, both("in2"), thread)
    return compared(stage.every(graph, thread))


def _as_finished(wrote: Any) -> Any:
    """`update_state` on the head, as a task of the paused step that has finished."""

    def play(stage: Stage) -> Finding:
        graph = stage.compile(fan(None, None, p1=lambda _state: wrote, p2=asking()))
        thread = stage.thread()
        stage.run(graph, both("in"), thread)
        stage.update(graph, thread, both("U"), "p1")
        return compared({"reload": stage.values(graph, thread)})

    return play


def _overwrite_in_command(stage: Stage) -> Finding:
    graph = stage.compile(chain(n=asking("out")))
    thread = stage.thread()
    replaced = {"delta": Overwrite(["R"]), "plain": Overwrite(["R"])}
    commands: tuple[Any, ...] = (
        Command(update=replaced),
        Command(update=both("s")),
        Command(resume="y"),
    )
    for given in (both("in"), *commands):
        stage.run(graph, given, thread)
    return compared({"reload": stage.values(graph, thread)})


def _command_first(stage: Stage) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    live = stage.run(graph, Command(update=both("u")), thread)
    stored = stage.values(graph, thread)
    if live["delta"] == stored["delta"]:
        return compared({"stored": stored})
    evidence = f"live delta={live['delta']} stored delta={stored['delta']} plain={stored['plain']}"
    return Finding(present=True, evidence=evidence)


def _resume_on_finished(stage: Stage) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.run(graph, both("in"), thread)
    stage.run(graph, Command(resume="x", update=both("U1")), thread)
    stage.run(graph, Command(update=both("U2")), thread)
    stage.run(graph, both("in2"), thread)
    return compared(stage.every(graph, thread))


def _by_durability() -> Iterator[Scenario]:
    for durability in ("sync", "exit"):
        yield Scenario(
            "int1 half-finished superstep (one task interrupted), then new input: "
            f"dropped write revived [{durability}]",
            _HALF,
            partial(_new_input, durability=durability),
        )
        yield Scenario(
            "int2 half-finished superstep, then update_state on the head: "
            f"dropped write revived [{durability}]",
            _HALF,
            partial(_update, durability=durability),
        )


SCENARIOS = (
    *_by_durability(),
    Scenario(
        "int3 update_state(None, END) on a paused thread loses/revives delta writes", _HALF, _ended
    ),
    Scenario(
        "fail1 half-failed superstep, then new input: dropped write revived",
        _HALF,
        repeated(_failed),
    ),
    Scenario(
        "H4 update_state as a task that has finished in this paused step, without delta "
        "output: write lost",
        "finished-task-update",
        _as_finished(None),
    ),
    Scenario(
        "H4b same, the finished task wrote only other channels",
        "finished-task-update",
        _as_finished({"other": 1}),
    ),
    Scenario(
        "H5 Command(update=Overwrite) then Command(update=..) on one head: reload revives the "
        "dropped sibling",
        "overwrite-in-command",
        _overwrite_in_command,
    ),
    Scenario(
        "cmd1 Command(update) as very first input of a thread: live and stored value differ",
        "command-as-first-input",
        _command_first,
    ),
    Scenario(
        "cmd3 Command(resume, update) on a finished head, then another Command: the update is "
        "stored in two slots and applies twice",
        "command-saved-twice",
        _resume_on_finished,
    ),
)
