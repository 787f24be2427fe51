"""Random conversations with random runs that are rolled back: as if those had not been."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import capture_rollback_point, restore
from deerflow_saver.state.fork_probe import forks_are_right
from support.modes import thread
from support.rollback_threads import RUN, Stopped, Stopping, config_of_run, shown

OPERATIONS = ("turn", "spread", "update", "ask", "fails", "fails late", "again")
if forks_are_right():
    # Releases with wrong forks also misread, with nobody rolling back, what follows a busy head
    OPERATIONS += ("both", "answer", "command")
Steps = list[tuple[str, int]]


def perform(agent: Stopping, name: str, number: int, config: Any) -> None:
    """One operation; what fails does so in a step of one task, so nothing is left to chance."""
    agent.stop = {"fails": "plan", "fails late": "close"}.get(name)
    asked = agent.accessor.get(thread()).interrupts
    given: dict[str, Any] = {
        "spread": {"log": [f"in {number}"], "do": "spread"},
        "ask": {"log": [f"in {number}"], "do": "ask twice"},
        "both": {"log": [f"in {number}"], "do": "ask both"},
        "again": None,
        "command": Command(update={"log": [f"c {number}"]}, goto="close"),
        "answer": Command(resume={one.id: f"a {number}" for one in asked[number % 2 :]}),
    }
    if name == "update":
        agent.accessor.update(config, {"log": [f"u {number}"]}, as_node="close")
        return
    if (name == "answer" and not asked[number % 2 :]) or (name == "again" and not seen(agent)[1]):
        return
    try:
        agent.graph.invoke(given.get(name, {"log": [f"in {number}"], "do": "x"}), config)
    except Stopped:
        agent.stop = None


def seen(agent: Stopping) -> Any:
    """What is shown; one step's logs come in no order of their own."""
    values, runs, tasks, asked = shown(agent)
    return {**values, "log": sorted(values.get("log", ()))}, runs, tasks, asked


steps = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9))


@settings(max_examples=20)
@given(
    st.sampled_from(["full", "delta"]),
    st.lists(steps, max_size=4),
    st.lists(steps, min_size=1, max_size=3),
    st.lists(steps, max_size=3),
)
def test_a_run_that_is_rolled_back_leaves_no_trace_in_what_follows(
    mode: Literal["full", "delta"], before: Steps, run: Steps, after: Steps
) -> None:
    saver = InMemorySaver()
    agent, control = Stopping(mode, CachedHistorySaver(saver)), Stopping(mode, InMemorySaver())
    for name, number in [("turn", 0), *before]:
        for one in (agent, control):
            perform(one, name, number, thread())
    found = shown(agent)
    point = capture_rollback_point(agent.accessor, thread())
    for name, number in run:
        perform(agent, name, number, config_of_run())
    assert restore(agent.accessor, point, run_id=RUN)
    assert shown(agent) == found == shown(Stopping(mode, saver))
    for name, number in after:
        for one in (agent, control):
            perform(one, name, number, thread())
        assert seen(agent) == seen(control) == seen(Stopping(mode, saver))
