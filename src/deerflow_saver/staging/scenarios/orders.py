"""Parallel writes: replayed in the order in which they were applied."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, StateUpdate

from deerflow_saver.staging.scenarios.graphs import (
    State,
    asking,
    asking_beside,
    both,
    fan,
    loop_free,
    writing,
)
from deerflow_saver.staging.scenarios.scenario import SQLITE, Finding, Scenario, compared, repeated
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]

_SLUG = "parallel-write-order"


def _six() -> Any:
    nodes = {f"n{number}": writing(f"n{number}") for number in range(6)}
    return fan(None, None, **nodes)


def _sends(_state: Any) -> list[Send]:
    return [Send("map", f"m{number}") for number in range(12)]


def _echo(item: Any) -> Any:
    return both(item)


def _twelve() -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("map", _echo)
    builder.add_conditional_edges(START, _sends, ["map"])
    builder.add_edge("map", END)
    return builder


def _reloaded(stage: Stage, builder: Any, durability: str) -> Finding:
    graph, thread = stage.compile(builder), stage.thread()
    stage.run(graph, both("in"), thread, durability)
    return compared({"reload": stage.values(graph, thread)})


def _updates(stage: Stage) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.run(graph, both("in"), thread)
    updates = [StateUpdate(both(f"u{number}"), "n") for number in range(6)]
    stage.ask(graph, "bulk_update_state", thread, [updates])
    return compared({"reload": stage.values(graph, thread)})


def _multi_step(durability: str) -> Any:
    """A conversation with two questions and an update beside the second answer."""

    def play(stage: Stage) -> Finding:
        graph, thread = stage.compile(asking_beside()), stage.thread()
        given: Any
        last: Any = Command(resume="n", update=both("U"))
        for given in (both("in"), Command(resume="y"), both("in2"), last):
            stage.run(graph, given, thread, durability)
        return compared(stage.every(graph, thread))

    return repeated(play)


def _updated_twice(stage: Stage) -> Finding:
    graph, thread = stage.compile(asking_beside()), stage.thread()
    commands: tuple[Any, ...] = (
        Command(update=both("U1")),
        Command(update=both("U2")),
        Command(resume="y"),
    )
    for given in (both("in"), *commands):
        stage.run(graph, given, thread)
    return compared(stage.every(graph, thread))


def _hidden_path(stage: Stage) -> Finding:
    def unsigned(store: Any) -> Any:
        def put_writes(*args: Any, **kwargs: Any) -> Any:
            return store(*args, **kwargs)

        return put_writes

    with stage.replaced("put_writes", unsigned):
        return _reloaded(stage, _six(), "async")


def _older_rows(stage: Stage) -> Finding:
    """A step that a saver without a `task_path` column began, and one with it finishes."""
    asked = fan(None, None, p1=asking("p1"), p2=writing("p2"), p3=writing("p3"))
    graph, thread = stage.compile(asked), stage.thread()
    stage.run(graph, both("in"), thread)
    _blank_paths(stage, thread["configurable"]["thread_id"])
    stage.run(graph, Command(resume="R"), thread)
    return compared({"reload": stage.values(graph, thread)})


def _blank_paths(stage: Stage, thread_id: str) -> None:
    with closing(sqlite3.connect(str(stage.address))) as connection, connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
        if "task_path" in columns:
            connection.execute("UPDATE writes SET task_path = '' WHERE thread_id = ?", (thread_id,))


_WHAT = "8382 parallel writes replay in another order"
SCENARIOS = (
    Scenario(f"{_WHAT} (edges)", _SLUG, repeated(lambda s: _reloaded(s, _six(), "async"), 3)),
    Scenario(f"{_WHAT} (Send x12)", _SLUG, repeated(lambda s: _reloaded(s, _twelve(), "async"), 3)),
    Scenario(
        f"{_WHAT} (exit durability)", _SLUG, repeated(lambda s: _reloaded(s, _six(), "exit"), 3)
    ),
    Scenario(
        "8382u several updates of one update_state superstep replay out of order / are lost",
        _SLUG,
        repeated(_updates, 3),
    ),
    Scenario("exit1 multi-step run reads back wrong [sync]", "exit-order", _multi_step("sync")),
    Scenario("exit1 multi-step run reads back wrong [exit]", "exit-order", _multi_step("exit")),
    Scenario(
        "cmd2 Command(update) saved twice on one head applies twice after reload",
        "command-saved-twice",
        repeated(_updated_twice),
    ),
    Scenario(
        "W1 a saver whose put_writes takes *args is not given task_path (order lost)",
        "star-args-wrapper",
        repeated(_hidden_path, 3),
    ),
    Scenario(
        "19 a step begun by a saver without task_path replays out of order",
        "rows-without-task-path",
        repeated(_older_rows),
        SQLITE,
    ),
)
