"""One graph in both modes with what a step can leave behind: questions, sends, breakpoints."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.graph import END, START, StateGraph
from langgraph.managed import RemainingSteps
from langgraph.types import Send, interrupt

from deerflow_saver.state import CheckpointStateAccessor

__all__ = ["Agent"]


def extend(current: list[str], writes: list[list[str]]) -> list[str]:
    return [*current, *(item for write in writes for item in write)]


def merge(current: dict[str, Any], writes: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for part in (current, *writes) for key, value in part.items()}


@cache
def schema(mode: str) -> Any:
    def reduced(reducer: Any) -> Any:
        if mode == "delta":
            return DeltaChannel(reducer, snapshot_frequency=4)
        return lambda old, new: reducer(old, [new])

    fields: dict[str, Any] = {
        "log": Annotated[list[str], reduced(extend)],
        "facts": Annotated[dict[str, Any], reduced(merge)],
        "title": str,
        "do": str,
        "hint": Annotated[str, EphemeralValue],
        "handle": Annotated[Any, UntrackedValue],
        "left": RemainingSteps,
    }
    return TypedDict("State", fields, total=False)  # type: ignore[operator]


class Agent:
    """The graph on a saver, and which of its nodes ran since it was last asked."""

    def __init__(self, mode: Any, saver: Any, **options: Any) -> None:
        self.ran: list[str] = []
        self.graph = self._builder(mode).compile(checkpointer=saver, **options)
        self.accessor = CheckpointStateAccessor(self.graph, saver, mode)

    def take_ran(self) -> list[str]:
        ran, self.ran = sorted(self.ran), []
        return ran

    def _builder(self, mode: str) -> Any:
        builder: Any = StateGraph(schema(mode))
        for name in ("plan", "ask", "work", "part", "close"):
            builder.add_node(name, getattr(self, f"_{name}"))
        builder.add_edge(START, "plan")
        builder.add_edge("plan", "ask")
        builder.add_edge("plan", "work")
        builder.add_conditional_edges("work", self._spread, ["part", "close"])
        builder.add_edge(["ask", "work"], "close")
        builder.add_edge("close", END)
        return builder

    def _plan(self, state: Any) -> Any:
        self.ran.append("plan")
        assert state["left"] > 0
        return {
            "log": ["plan"],
            "facts": {"planned": len(state["log"])},
            "hint": "h",
            "handle": object(),
        }

    def _ask(self, state: Any) -> Any:
        self.ran.append("ask")
        if state.get("do") in {"ask", "ask twice"}:
            first = interrupt("first?")
            second = interrupt("second?") if state["do"] == "ask twice" else ""
            return {"log": [f"answered {first}{second}"], "title": f"asked {first}"}
        return {"title": "not asked"}

    def _work(self, state: Any) -> Any:
        self.ran.append("work")
        if state.get("do") == "ask both":
            return {"log": [f"work {interrupt('work?')}"]}
        return {"log": ["work"], "facts": {"worked": state.get("hint", "no hint")}}

    def _spread(self, state: Any) -> Any:
        return (
            [Send("part", {"n": n}) for n in range(2)] if state.get("do") == "spread" else ["close"]
        )

    def _part(self, state: Any) -> Any:
        self.ran.append(f"part {state['n']}")
        return {"log": [f"part {state['n']}"]}

    def _close(self, state: Any) -> Any:
        self.ran.append("close")
        return {"log": ["close"], "facts": {"closed": len(state["log"])}}
