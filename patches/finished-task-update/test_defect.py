"""Two nodes side by side: one has finished, the other waits for an answer."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

THREAD: Any = {"configurable": {"thread_id": "1"}}


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend)]
    plain: Annotated[list[str], operator.add]
    other: int


def said(text: str) -> State:
    return {"log": [text], "plain": [text]}


def paused() -> Any:
    builder = StateGraph(State)
    builder.add_node("finished", lambda _: {"other": 1})
    builder.add_node("waiting", lambda _: said(interrupt("?")))
    for name in ("finished", "waiting"):
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(said("in"), THREAD)
    return graph


def test_an_update_as_the_finished_node_is_read_back() -> None:
    graph = paused()
    graph.update_state(THREAD, said("update"), as_node="finished")
    values = graph.get_state(THREAD).values
    assert (values["log"], values["plain"]) == (["in", "update"], ["in", "update"])


def test_an_update_as_the_finished_node_is_read_back_async() -> None:
    graph = paused()
    asyncio.run(graph.aupdate_state(THREAD, said("update"), as_node="finished"))
    values = graph.get_state(THREAD).values
    assert (values["log"], values["plain"]) == (["in", "update"], ["in", "update"])


def test_the_update_stays_on_its_branch() -> None:
    graph = paused()
    before = graph.get_state(THREAD).config
    graph.update_state(THREAD, said("update"), as_node="finished")
    graph.update_state(before, said("other"), as_node="finished")
    values = graph.get_state(THREAD).values
    assert (values["log"], values["plain"]) == (["in", "other"], ["in", "other"])
