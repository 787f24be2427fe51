"""A delta channel declared on a union: its type cannot be called to make an empty value."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Overwrite

Settings = dict[str, int]


def merge(current: Settings | None, writes: list[Settings]) -> Settings:
    merged = dict(current or {})
    for write in writes:
        merged.update(write)
    return merged


class State(TypedDict, total=False):
    settings: Annotated[dict | None, DeltaChannel(merge)]


def reloaded(*inputs: Any) -> Any:
    """The channel's value, read from storage after one run for each input."""
    builder = StateGraph(State)
    builder.add_node("node", lambda _: {"settings": {"node": 1}})
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    try:
        for given in inputs:
            graph.invoke({"settings": given}, thread)
        return graph.get_state(thread).values["settings"]
    except TypeError as error:
        pytest.fail(str(error))


def test_writes_are_reduced_from_nothing() -> None:
    assert reloaded({"a": 1}, {"b": 2}) == {"a": 1, "node": 1, "b": 2}


def test_an_overwrite_by_none_empties_the_channel() -> None:
    assert reloaded({"a": 1}, Overwrite(None)) == {"node": 1}
