"""What a graph's channels are made of: plain reducers, delta channels, or one of each.

Every node writes the same to `log` and to `ref`, so in a mixed state the plain channel says
what the delta channel must read.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.channels import BinaryOperatorAggregate, DeltaChannel
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.managed import RemainingSteps

__all__ = ["KINDS", "Kind", "agent_state", "append", "channel", "heard", "say", "state"]

Kind = Literal["full", "delta", "mixed"]
KINDS: tuple[Kind, ...] = ("full", "delta", "mixed")
SELDOM = 1000
"""A snapshot cadence that no scenario reaches, so that reads depend on the chain."""


def append(current: Any, writes: Sequence[Any]) -> list[Any]:
    """A batching-invariant reducer of lists."""
    joined = list(current or [])
    for write in writes:
        joined.extend(write)
    return joined


def _is_delta(kind: Kind, name: str) -> bool:
    return kind == "delta" or (kind == "mixed" and name == "log")


def channel(kind: Kind, name: str, frequency: int = SELDOM) -> Any:
    """A channel object, for graphs built from channels."""
    if _is_delta(kind, name):
        return DeltaChannel(append, list, snapshot_frequency=frequency)
    return BinaryOperatorAggregate(list, operator.add)


@cache
def state(kind: Kind, frequency: int = SELDOM) -> Any:
    """The state schema of most scenarios."""

    def field(name: str) -> Any:
        if _is_delta(kind, name):
            return Annotated[list[str], DeltaChannel(append, snapshot_frequency=frequency)]
        return Annotated[list[str], operator.add]

    fields = {"log": field("log"), "ref": field("ref"), "x": int, "go": str}
    return TypedDict("State", fields, total=False)  # type: ignore[operator]


@cache
def agent_state(kind: Kind) -> Any:
    """The state schema of an agent."""
    reducer = (
        add_messages
        if kind == "full"
        else DeltaChannel(_messages_delta_reducer, snapshot_frequency=SELDOM)
    )
    fields = {
        "messages": Annotated[list[AnyMessage], reducer],
        "ref": Annotated[list[str], operator.add],
        "remaining_steps": RemainingSteps,
    }
    return TypedDict("AgentState", fields, total=False)  # type: ignore[operator]


def say(*texts: str) -> dict[str, Any]:
    """The same texts for both channels."""
    return {"log": list(texts), "ref": list(texts)}


def heard(values: Any) -> int:
    """How much a state holds: what a node saw shows in what it says."""
    return len((values or {}).get("log") or ())
