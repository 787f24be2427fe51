"""Subgraphs, and savers that come with the config."""

from __future__ import annotations

from typing import Any

from deerflow_saver.staging.scenarios.graphs import asking, both, chain, counting, loop_free
from deerflow_saver.staging.scenarios.scenario import Finding, Scenario, compared
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]

_SLUG = "subgraph-hydration"


def _paused_inside(stage: Stage, *, per_thread: bool) -> Finding:
    """The state of a subgraph whose second node asks."""
    child = chain(a=counting("a")[0], ask=asking())
    compiled = child.compile(checkpointer=True) if per_thread else child.compile()
    graph, thread = stage.compile(chain(sub=compiled)), stage.thread()
    stage.run(graph, both("in"), thread)
    state = stage.ask(graph, "get_state", thread, subgraphs=True)
    return compared({"sub@interrupt": state.tasks[0].state.values})


def _injected(stage: Stage) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.run(graph, both("in1"), thread)
    bare: Any = loop_free().compile()
    given = {"configurable": {**thread["configurable"], "__pregel_checkpointer": stage.saver}}
    states = {"get_state(injected)": stage.values(bare, given)}
    stage.update(bare, given, both("u"), "n")
    states["after update_state"] = stage.values(graph, thread)
    return compared(states)


SCENARIOS = (
    Scenario(
        "8470 subgraph state read hydrates DeltaChannel empty (get_state subgraphs=True)",
        _SLUG,
        lambda stage: _paused_inside(stage, per_thread=False),
    ),
    Scenario(
        "8470t per-thread subgraph (checkpointer=True) read hydrates empty",
        _SLUG,
        lambda stage: _paused_inside(stage, per_thread=True),
    ),
    Scenario(
        "8653 update_state with a config-injected checkpointer erases the DeltaChannel",
        _SLUG,
        _injected,
    ),
)
