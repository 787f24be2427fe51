"""An answer that comes after the thread went on without it.

`log` is a delta channel and `plain` an ordinary reducer channel; they get the same writes, so
they must read the same on every branch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

Durability = Literal["sync", "async", "exit"]
DURABILITIES: Sequence[Durability] = ("sync", "async", "exit")


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend)]
    plain: Annotated[list[str], operator.add]


def said(text: str) -> State:
    return {"log": [text], "plain": [text]}


def ask(_: State) -> State:
    return said(f"answer {interrupt('?')}")


def graph_of(**nodes: Callable[[State], State]) -> Any:
    """All nodes side by side."""
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder.compile(checkpointer=InMemorySaver())


def both(graph: Any, config: Any) -> tuple[list[str], list[str]]:
    values = graph.get_state(config).values
    return values["log"], values["plain"]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_late_answer_stays_on_its_branch(durability: Durability) -> None:
    graph, thread = graph_of(ask=ask), {"configurable": {"thread_id": "1"}}
    graph.invoke(said("first"), thread, durability=durability)
    paused = graph.get_state(thread).config
    graph.invoke(said("second"), thread, durability=durability)
    left = graph.get_state(thread).config

    graph.invoke(Command(resume="late"), paused, durability=durability)

    assert both(graph, left) == (["first", "second"], ["first", "second"])
    assert both(graph, thread) == (["first", "answer late"], ["first", "answer late"])


@pytest.mark.parametrize("durability", DURABILITIES)
def test_two_late_answers_one_by_one(durability: Durability) -> None:
    graph, thread = graph_of(one=ask, two=ask), {"configurable": {"thread_id": "1"}}
    graph.invoke(said("first"), thread, durability=durability)
    paused = graph.get_state(thread)
    graph.invoke(said("second"), thread, durability=durability)
    left = graph.get_state(thread).config

    for number, question in enumerate(paused.interrupts):
        late = Command(resume={question.id: str(number)})
        graph.invoke(late, paused.config, durability=durability)
        assert both(graph, left) == (["first", "second"], ["first", "second"])

    log, plain = both(graph, thread)
    assert sorted(log) == sorted(plain) == ["answer 0", "answer 1", "first"]
