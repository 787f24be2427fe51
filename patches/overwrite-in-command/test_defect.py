"""An `Overwrite` in one `Command` and a plain write in the next, before a checkpoint is made."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend)]
    plain: Annotated[list[str], operator.add]


def said(text: str) -> State:
    return {"log": [text], "plain": [text]}


def test_what_an_overwrite_dropped_stays_dropped() -> None:
    builder = StateGraph(State)
    builder.add_node("node", lambda _: said("out"))
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    graph.invoke(said("in"), thread)
    replaced = Overwrite(["replaced"])
    graph.invoke(Command(update={"log": replaced, "plain": replaced}), thread)

    live = graph.invoke(Command(update=said("dropped"), goto="node"), thread)
    reloaded = graph.get_state(thread).values

    assert reloaded["log"] == live["log"] == ["replaced", "out"]
    assert reloaded["plain"] == live["plain"] == ["replaced", "out"]
