"""Whether this LangGraph's own forks of delta threads are right: tried, not guessed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

__all__ = ["forks_are_right"]


def _extend(current: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*current, *(item for write in writes for item in write)]


class _Both(TypedDict, total=False):
    delta: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=1000)]
    plain: Annotated[list[str], operator.add]


@cache
def forks_are_right() -> bool:
    """Fork a delta thread from the middle of a run and by an update, and read every branch.

    Releases up to 1.2.12 replay the abandoned branch's writes into a fork (#8443), and a
    fork's into the branch it left (#8551).
    """
    graph = _graph()
    thread: Any = {"configurable": {"thread_id": "probe"}}
    for turn in ("one", "two"):
        graph.invoke(_write(turn), thread)
    history = list(graph.get_state_history(thread))
    middle = next(state for state in history if state.next == ("second",))
    settled = next(state for state in history[1:] if not state.next)
    graph.invoke(_write("fork"), middle.config)
    graph.update_state(settled.config, _write("update"), as_node="second")
    states = list(graph.get_state_history(thread))
    return all(state.values.get("delta", []) == state.values.get("plain", []) for state in states)


def _write(what: str) -> Any:
    return {"delta": [what], "plain": [what]}


def _graph() -> Any:
    builder: Any = StateGraph(_Both)
    for name in ("first", "second"):
        builder.add_node(name, lambda _, name=name: _write(name))
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=InMemorySaver())
