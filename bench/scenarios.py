"""The threads that are measured: an agent that calls two tools in parallel at each turn.

One turn is a question, a model message with two tool calls, the two tools' answers (two
parallel tasks of one superstep) and the model's answer: five writes to the delta channel
`messages` and five checkpoints. Contents and ids are a function of the turn's number, so
every thread of the same length says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send

__all__ = [
    "CHANNEL",
    "STARTS",
    "WRITES_PER_TURN",
    "Start",
    "Thread",
    "agent",
    "grow",
    "snapshot_frequency",
]

CHANNEL = "messages"
WRITES_PER_TURN = 5
UPDATES_PER_TURN = 4
"""Supersteps of a turn that write `messages`: the two tools answer in one."""
CONTENT_BYTES = 128
NEVER = 1_000_000

Start = Literal["root", "seeded"]
STARTS: tuple[Start, ...] = ("root", "seeded")
"""Where the measured walk ends: at a snapshot in the middle of the thread, or at its root."""


def _text(*about: object) -> str:
    """`CONTENT_BYTES` characters that differ from message to message."""
    words = " ".join(map(str, about))
    return (words + " ").ljust(CONTENT_BYTES, "abcdefghij klmno pqrstu vwxyz "[len(words) % 30])


def _number(messages: Sequence[AnyMessage]) -> int:
    """The turn under way, from its question's id."""
    question = next(m for m in reversed(messages) if m.type == "human")
    return int(str(question.id).rpartition("-")[2])


def _agent(state: dict[str, Any]) -> dict[str, Any]:
    turn = _number(state[CHANNEL])
    if state[CHANNEL][-1].type == "human":
        calls = [
            {
                "name": "search",
                "args": {"query": f"topic {turn}", "page": page},
                "id": f"{turn}.{page}",
            }
            for page in (1, 2)
        ]
        answer = AIMessage(_text("look up", turn), id=f"plan-{turn}", tool_calls=calls)
    else:
        answer = AIMessage(_text("answer", turn), id=f"answer-{turn}")
    return {CHANNEL: [answer]}


def _tool(call: dict[str, Any]) -> dict[str, Any]:
    found = _text("found", call["args"]["query"], call["args"]["page"])
    return {CHANNEL: [ToolMessage(found, id=f"tool-{call['id']}", tool_call_id=call["id"])]}


def _route(state: dict[str, Any]) -> list[Send] | str:
    last = state[CHANNEL][-1]
    return [Send("tool", call) for call in last.tool_calls] or END


def agent(
    saver: BaseCheckpointSaver[Any], frequency: int
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The graph, with a snapshot of `messages` every `frequency` updates."""
    reducer = cast("Callable[..., Any]", _messages_delta_reducer)
    channel: DeltaChannel[Any] = DeltaChannel(reducer, snapshot_frequency=frequency)
    state = TypedDict("State", {CHANNEL: Annotated[list[AnyMessage], channel]})  # type: ignore[misc]
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    graph.add_node("agent", _agent)
    graph.add_node("tool", _tool)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", _route, ["tool", END])
    graph.add_edge("tool", "agent")
    return graph.compile(checkpointer=saver)


@dataclass
class Thread:
    """One conversation, run by one saver."""

    graph: CompiledStateGraph[Any, Any, Any, Any]
    config: RunnableConfig
    turns: int = field(default=0)

    def turn(self) -> Any:
        """Ask the next question; the final state."""
        self.turns += 1
        question = HumanMessage(_text("question", self.turns), id=f"human-{self.turns}")
        return self.graph.invoke({CHANNEL: [question]}, self.config)

    def states(self, limit: int) -> list[Any]:
        """The newest states, as `get_state_history` gives them."""
        return list(self.graph.get_state_history(self.config, limit=limit))


def snapshot_frequency(start: Start, depth: int, further_turns: int) -> int:
    """A cadence at which `depth` writes and `further_turns` turns fit between two snapshots.

    It falls on the end of a turn, so that `depth` writes later the head is `depth` writes
    past the snapshot, exactly.
    """
    if start == "root":
        return NEVER
    return UPDATES_PER_TURN * (depth // WRITES_PER_TURN + further_turns + 1)


def grow(
    saver: BaseCheckpointSaver[Any], thread_id: str, start: Start, depth: int, further_turns: int
) -> Thread:
    """A thread with `depth` writes since its snapshot or its root, and room for further turns."""
    frequency = snapshot_frequency(start, depth, further_turns)
    thread = Thread(agent(saver, frequency), {"configurable": {"thread_id": thread_id}})
    seeding = 0 if start == "root" else frequency // UPDATES_PER_TURN
    for _ in range(seeding + depth // WRITES_PER_TURN):
        thread.turn()
    return thread
