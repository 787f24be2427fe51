"""A run that its caller left half-way is closed by the garbage collector, wherever that runs."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from deerflow_saver import CachedHistorySaver


def extend(current: list[Any] | None, writes: list[list[Any]]) -> list[Any]:
    return [*(current or []), *(item for write in writes for item in write)]


class State(TypedDict):
    log: Annotated[list[Any], DeltaChannel(extend)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("guard", ["refuse", "off"])
def test_reading_goes_on_while_the_saves_of_an_abandoned_run_are_waited_for(guard: Any) -> None:
    inner = InMemorySaver()
    builder = StateGraph(State)
    for name in ("a", "b"):
        builder.add_node(name, lambda _, name=name: {"log": [AIMessage(name)]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", END)
    graph = builder.compile(checkpointer=CachedHistorySaver(inner, guard=guard))
    raw = builder.compile(checkpointer=inner)
    config: Any = {"configurable": {"thread_id": "1"}}
    for _ in range(40):
        graph.invoke({"log": [AIMessage("in")]}, config)

    def abandon() -> None:
        # The error, its traceback, this frame and the run form a cycle
        failure: BaseException | None = None
        run = graph.stream({"log": [AIMessage("in")]}, config)
        try:
            for _ in run:
                raise ConnectionError  # noqa: TRY301 - the consumer fails while it iterates
        except ConnectionError as error:
            failure = error
        assert failure is not None

    for _ in range(3):
        graph.get_state(config)
        abandon()
        graph.get_state(config)
    assert graph.get_state(config).values == raw.get_state(config).values
