"""A graph with delta channels of several cadences, and one turn of every kind LangGraph has.

Each node feeds the channel `plain`, whose reducer is an ordinary one, as it feeds `log`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Overwrite, Send, interrupt

__all__ = ["CHANNELS", "PARALLEL", "TURNS", "Fault", "builder", "update"]

CHANNELS = ("log", "slow", "facts")
TURNS = (
    "work",
    "fan",
    "send",
    "ask",
    "fan-ask",
    "child",
    "memo",
    "child-ask",
    "loop",
    "reset",
    "edit",
    "fault",
)
PARALLEL = ("fan", "send", "fan-ask")
"""Turns in which several tasks of one superstep write to a channel."""


class Fault(Exception):  # noqa: N818 - the graph's own fault, not an error of the suite
    """Raised by a node, alone: whether LangGraph stores a sibling's writes is a race."""


class Turn(TypedDict):
    """What the next run does; `n` makes its writes unlike those of others."""

    kind: str
    n: int


def _turn(state: Any) -> Any:
    """Work, where `update_state` began the thread and nobody said what to do."""
    return state.get("turn") or {"kind": "work", "n": 0}


def _concat(state: Any, writes: Sequence[Any]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


def _merge(state: Any, writes: Sequence[Any]) -> dict[str, Any]:
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return merged


def update(name: str, n: int) -> dict[str, Any]:
    """A write to every channel."""
    call = {"name": "tool", "args": {"n": [n]}, "id": f"call-{name}-{n}"}
    return {
        "log": [AIMessage(f"{name} {n}", id=f"{name}-{n}", tool_calls=[call])],
        "plain": [AIMessage(f"{name} {n}", id=f"{name}-{n}", tool_calls=[call])],
        "slow": [{"by": name, "n": n}],
        "facts": {name: [n, {"deep": [n]}], f"{name}-{n % 3}": n},
    }


def _node(name: str) -> Any:
    def node(state: Any) -> dict[str, Any]:
        return update(name, _turn(state)["n"])

    return node


def _sent(state: Any) -> dict[str, Any]:
    return update(f"sent-{state['item']}", state["n"])


def _ask(state: Any) -> dict[str, Any]:
    answer = interrupt({"question": _turn(state)["n"]})
    return update(f"answer-{answer}", _turn(state)["n"])


def _loop(state: Any) -> dict[str, Any]:
    turn = _turn(state)
    return {**update("loop", turn["n"]), "turn": {"kind": "loop", "n": turn["n"] - 1}}


def _reset(state: Any) -> dict[str, Any]:
    fresh = update("reset", _turn(state)["n"])
    return {name: Overwrite(fresh[name]) for name in ("log", "plain", "facts")}


def _edit(state: Any) -> dict[str, Any]:
    for item in (*state.get("slow", ())[-1:], state.get("facts") or {}):
        item["edited"] = [_turn(state)["n"]]  # in place, as some nodes do
    return update("edit", _turn(state)["n"])


def _fault(state: Any) -> dict[str, Any]:
    raise Fault


def _route(state: Any) -> Any:
    kind, n = _turn(state)["kind"], _turn(state)["n"]
    if kind == "fan":
        return ["work", "other", "third"]
    if kind == "fan-ask":
        return ["work", "ask"]
    if kind == "send":
        return [Send("sent", {"item": item, "n": n}) for item in range(n + 1)]
    return {"child-ask": "child"}.get(kind, kind)


def _again(state: Any) -> str:
    return "loop" if _turn(state)["n"] > 0 else "last"


def _schema(cadence: int) -> Any:
    return TypedDict(  # type: ignore[operator]
        "State",
        {
            "log": Annotated[list[Any], DeltaChannel(_concat, snapshot_frequency=cadence)],
            "slow": Annotated[list[Any], DeltaChannel(_concat, snapshot_frequency=1000)],
            "facts": Annotated[dict[str, Any], DeltaChannel(_merge, snapshot_frequency=7)],
            "plain": Annotated[list[Any], operator.add],
            "turn": Turn,
        },
    )


def _child_schema(cadence: int) -> Any:
    return TypedDict(  # type: ignore[operator]
        "ChildState",
        {
            "log": Annotated[list[Any], DeltaChannel(_concat, snapshot_frequency=cadence)],
            "turn": Turn,
        },
    )


def _child(cadence: int) -> StateGraph[Any]:
    def speak(state: Any) -> dict[str, Any]:
        return {"log": [f"child {state['turn']['n']}"]}

    def maybe_ask(state: Any) -> dict[str, Any]:
        answer = interrupt("child") if _turn(state)["kind"] == "child-ask" else "none"
        return {"log": [f"child heard {answer}"]}

    graph = StateGraph(_child_schema(cadence))
    graph.add_node("speak", speak)
    graph.add_node("hear", maybe_ask)
    graph.add_edge(START, "speak")
    graph.add_edge("speak", "hear")
    graph.add_edge("hear", END)
    return graph


def builder(cadence: int) -> StateGraph[Any]:
    """The graph, to be compiled with a saver."""
    graph = StateGraph(_schema(cadence))
    for name in ("work", "other", "third", "last"):
        graph.add_node(name, _node(name))
    for name, node in {
        "sent": _sent,
        "ask": _ask,
        "loop": _loop,
        "reset": _reset,
        "edit": _edit,
        "fault": _fault,
    }.items():
        graph.add_node(name, node)

    # Wrapped in functions, so that the child's whole log does not come back as one write
    inherited, lasting = _child(cadence).compile(), _child(3).compile(checkpointer=True)
    graph.add_node("child", _calling("child", inherited))
    graph.add_node("memo", _calling("memo", lasting))
    graph.add_conditional_edges(START, _route)
    for name in ("work", "other", "third", "sent", "ask", "reset", "edit", "child", "memo"):
        graph.add_edge(name, "last")
    graph.add_conditional_edges("loop", _again, ["loop", "last"])
    graph.add_edge("last", END)
    return graph


def _calling(name: str, child: Any) -> Any:
    def call(state: Any) -> dict[str, Any]:
        answer = child.invoke({"turn": _turn(state), "log": [_turn(state)["n"]]})
        return {**update(name, _turn(state)["n"]), "slow": list(answer["log"])}

    async def acall(state: Any) -> dict[str, Any]:
        answer = await child.ainvoke({"turn": _turn(state), "log": [_turn(state)["n"]]})
        return {**update(name, _turn(state)["n"]), "slow": list(answer["log"])}

    return RunnableLambda(call, acall, name=name)
