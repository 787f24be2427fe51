"""`update_state` in places of its own: fresh threads, copies, snapshots."""

# Without `from __future__ import annotations`: LangGraph reads the states' annotations.
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph

from deerflow_saver.staging.scenarios.graphs import append, both, loop_free
from deerflow_saver.staging.scenarios.scenario import Finding, Scenario, compared
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]


class _Often(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=3)]


def _fresh(stage: Stage) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.update(graph, thread, both("first"), "n")
    return compared({"fresh": stage.values(graph, thread)})


def _snapshots(stage: Stage) -> Finding:
    builder = StateGraph(_Often)
    builder.add_node("n", lambda _state: {"log": ["out"]})
    builder.add_edge(START, "n")
    builder.add_edge("n", END)
    graph, thread, updates = stage.compile(builder), stage.thread(), 7
    for number in range(updates):
        stage.update(graph, thread, {"log": [number]}, "n")
    rows = stage.ask(stage.saver, "list", thread)
    found = [row.checkpoint["channel_values"].get("log") for row in rows]
    count = sum(isinstance(value, _DeltaSnapshot) for value in found)
    return Finding(not count, f"frequency 3, {updates} updates: {count} snapshots")


def _copies(stage: Stage) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    for given in ("in1", "in2"):
        stage.run(graph, both(given), thread, "sync")
    for state in stage.history(graph, thread)[:3]:
        stage.update(graph, state.config, None, "__copy__")
        stage.run(graph, both("after"), thread, "sync")
    stage.update(graph, thread, [(both("V"), "n")], "__copy__")
    return compared(stage.every(graph, thread))


SCENARIOS = (
    Scenario(
        "8011 update_state on a fresh thread drops the first delta write",
        "fresh-thread-update",
        _fresh,
    ),
    Scenario(
        "8315 update_state does not advance the snapshot counters / never snapshots",
        "update-never-snapshots",
        _snapshots,
    ),
    Scenario(
        "copy1 __copy__ of a checkpoint, with and without values", "fork-replays-branch", _copies
    ),
)
