"""The graphs the scenarios run: `delta` and `plain` get the same writes."""

# Without `from __future__ import annotations`: LangGraph reads the states' annotations.
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

__all__ = [
    "Node", "State", "append", "asking", "asking_beside", "both", "chain", "counting", "fan",
    "loop_free", "writing",
]  # fmt: skip

Node = Callable[[Any], Any]
SELDOM = 1000
"""A snapshot frequency no scenario reaches."""


def append(state: list[Any] | None, writes: Iterable[Any]) -> list[Any]:
    """Add the writes' items, as `operator.add` does one by one."""
    return [*(state or []), *itertools.chain.from_iterable(writes)]


class State(TypedDict, total=False):
    """The two channels to compare, and one that is only overwritten."""

    delta: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=SELDOM)]
    plain: Annotated[list[Any], operator.add]
    other: int


def both(*items: Any) -> dict[str, list[Any]]:
    """The same write for both channels."""
    return {"delta": list(items), "plain": list(items)}


def writing(*items: Any) -> Node:
    """A node that always writes the same."""
    return lambda _state: both(*items)


def counting(prefixes: Iterable[str]) -> list[Node]:
    """Nodes that write their prefix and how many of them have run."""
    runs = itertools.count(1)

    def node(prefix: str) -> Node:
        return lambda _state: both(f"{prefix}{next(runs)}")

    return [node(prefix) for prefix in prefixes]


def asking(prefix: str = "ans") -> Node:
    """A node that asks its user and writes the answer."""
    return lambda _state: both(f"{prefix}-{interrupt('question')}")


def chain(**nodes: Node) -> Any:
    """Nodes one after the other."""
    builder: Any = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder


def fan(first: Node | None, last: Node | None, **nodes: Node) -> Any:
    """`first`, then `nodes` in parallel, then `last`."""
    builder: Any = StateGraph(State)
    start, end = START, END
    if first is not None:
        builder.add_node("a", first)
        builder.add_edge(START, "a")
        start = "a"
    if last is not None:
        builder.add_node("z", last)
        builder.add_edge("z", END)
        end = "z"
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(start, name)
        builder.add_edge(name, end)
    return builder


def loop_free() -> Any:
    """One node that writes `out1`, `out2`, ... from run to run."""
    return chain(n=counting(["out"])[0])


def asking_beside() -> Any:
    """A step of which one task finishes and the other asks, between two steps that count."""
    first, last = counting(["a", "z"])
    return fan(first, last, p1=writing("p1"), ask=asking("ask"))
