"""Messages without an id: they need one, the same at every read."""

# Without `from __future__ import annotations`: LangGraph reads the states' annotations.
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Command, Overwrite

from deerflow_saver.staging.scenarios.scenario import Finding, Scenario, repeated
from deerflow_saver.staging.scenarios.stage import Config, Stage

__all__ = ["SCENARIOS"]

_SLUG = "unstable-message-ids"
_HEAD_START = 0.003
"""Seconds."""


def _minting(state: list[AnyMessage] | None, writes: Iterable[Any]) -> Any:
    """Gives ids where they are missing, as reducers built on `add_messages` do.

    The message objects it gives ids to are being saved by another thread; it lets that one win.
    """
    time.sleep(_HEAD_START)
    messages: Any = list(state or [])
    for write in writes:
        messages = add_messages(messages, write)
    return messages


class _Upstream(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class _Minting(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(_minting)]


_DICT = {"role": "user", "content": "x"}
_WAYS: dict[str, Callable[[], Any]] = {
    "input": lambda: [HumanMessage("x")],
    "input-exit": lambda: [HumanMessage("x")],
    "dict": lambda: [dict(_DICT)],
    "tuple": lambda: [("user", "x")],
    "node": lambda: [HumanMessage("x")],
    "node-exit": lambda: [HumanMessage("x")],
    "update": lambda: [HumanMessage("x")],
    "overwrite": lambda: Overwrite([HumanMessage("x")]),
    "owdict": lambda: Overwrite([dict(_DICT)]),
    "str": lambda: "x",
    "command": lambda: [HumanMessage("x")],
}


_KNOWN = {"messages": [HumanMessage("known", id="known")]}


def _graph(state: Any, written: Any) -> Any:
    builder = StateGraph(state)
    builder.add_node("n", lambda _state: {"messages": written} if written else {})
    builder.add_edge(START, "n")
    builder.add_edge("n", END)
    return builder


def _written(stage: Stage, state: Any, way: str) -> tuple[Any, Config]:
    """A thread into which a message without id came in some way, and one that has an id."""
    given, thread = _WAYS[way](), stage.thread()
    durability = "exit" if way.endswith("-exit") else "async"
    graph = stage.compile(_graph(state, given if way.startswith("node") else None))
    if way.startswith("node"):
        stage.run(graph, _KNOWN, thread, durability)
    elif way == "update":
        stage.run(graph, _KNOWN, thread)
        stage.update(graph, thread, {"messages": given}, "n")
    elif way == "command":
        stage.run(graph, _KNOWN, thread)
        stage.run(graph, Command(update={"messages": given}, goto="n"), thread)
    else:
        stage.run(graph, {"messages": given}, thread, durability)
        stage.run(graph, _KNOWN, thread, durability)
    return graph, thread


def _reads(stage: Stage, state: Any, way: str) -> Finding:
    graph, thread = _written(stage, state, way)
    first, second = (
        [message.id for message in stage.values(graph, thread)["messages"]] for _ in range(2)
    )
    if not all(first):
        return Finding(present=True, evidence=f"ids missing ({len(first)} msgs)")
    stable = "stable" if first == second else "differ on every read"
    return Finding(first != second, f"ids {stable} ({len(first)} msgs)")


def _every() -> Iterator[Scenario]:
    for state, reducer in ((_Upstream, "upstream"), (_Minting, "minting")):
        for way in _WAYS:
            yield Scenario(
                f"7913 unstable/missing message ids: {way} [{reducer} reducer]",
                _SLUG,
                repeated(partial(_reads, state=state, way=way), 6),
            )


SCENARIOS = tuple(_every())
