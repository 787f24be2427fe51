"""The conversations that are measured, and the graphs that hold them.

`agent`: a question, a model message with two tool calls, the two tools' answers (parallel tasks
of one superstep) and the model's answer: five writes to the delta channel `messages` and five
checkpoints a turn. `append`: one message a turn, and a node that does nothing. Contents and ids
are a function of the turn's number, so every thread of the same length says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send

from deerflow_saver.bench.face import Face

__all__ = ["CHANNEL", "WRITES", "Graph", "Kind", "Thread", "build", "message", "text"]

Graph = CompiledStateGraph[Any, Any, Any, Any]
Kind = Literal["agent", "append"]
CHANNEL = "messages"
WRITES: dict[Kind, int] = {"agent": 5, "append": 1}
"""Writes to the delta channel in one turn."""
_FILLING = "abcdefghij klmno pqrstu vwxyz "


def text(size: int, *about: object) -> str:
    """`size` characters that differ from message to message."""
    words = " ".join(map(str, about))
    return f"{words} ".ljust(size, _FILLING[len(words) % len(_FILLING)])[: max(size, 1)]


def message(number: int, payload_bytes: int) -> AnyMessage:
    """The message of one turn of an append-only thread; human and model take turns."""
    kind = HumanMessage if number % 2 else AIMessage
    return kind(text(payload_bytes, "message", number), id=f"message-{number:08}")


def build(kind: Kind, saver: Any, frequency: int, payload_bytes: int) -> Graph:
    """The compiled graph on `saver`, with a snapshot of `messages` every `frequency` updates."""
    reducer = cast("Callable[..., Any]", _messages_delta_reducer)
    channel: DeltaChannel[Any] = DeltaChannel(reducer, snapshot_frequency=frequency)
    state = TypedDict("State", {CHANNEL: Annotated[list[AnyMessage], channel]})  # type: ignore[misc]
    graph: Any = StateGraph(state)
    if kind == "append":
        graph.add_node("nothing", lambda _: {})
        graph.add_edge(START, "nothing")
        return cast("Graph", graph.compile(checkpointer=saver))
    agent = _Agent(payload_bytes)
    graph.add_node("agent", agent.answer)
    graph.add_node("tool", agent.tool)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", agent.route, ["tool", END])
    graph.add_edge("tool", "agent")
    return cast("Graph", graph.compile(checkpointer=saver))


@dataclass(frozen=True, slots=True)
class _Agent:
    payload_bytes: int

    def answer(self, state: dict[str, Any]) -> dict[str, Any]:
        turn = _number(state[CHANNEL])
        if state[CHANNEL][-1].type == "human":
            plan = text(self.payload_bytes, "look up", turn)
            calls = [_call(turn, page) for page in (1, 2)]
            return {CHANNEL: [AIMessage(plan, id=f"plan-{turn}", tool_calls=calls)]}
        answer = text(self.payload_bytes, "answer", turn)
        return {CHANNEL: [AIMessage(answer, id=f"answer-{turn}")]}

    def tool(self, call: dict[str, Any]) -> dict[str, Any]:
        found = text(self.payload_bytes, "found", call["args"]["query"], call["args"]["page"])
        return {CHANNEL: [ToolMessage(found, id=f"tool-{call['id']}", tool_call_id=call["id"])]}

    def route(self, state: dict[str, Any]) -> list[Send] | str:
        return [Send("tool", call) for call in state[CHANNEL][-1].tool_calls] or END


def _call(turn: int, page: int) -> Any:
    args = {"query": f"topic {turn}", "page": page}
    return {"name": "search", "args": args, "id": f"{turn}.{page}"}


def _number(messages: Sequence[AnyMessage]) -> int:
    """The turn under way, from its question's id."""
    question = next(m for m in reversed(messages) if m.type == "human")
    return int(str(question.id).rpartition("-")[2])


@dataclass
class Thread:
    """One conversation, run by one saver."""

    kind: Kind
    graph: Graph
    face: Face
    config: RunnableConfig
    payload_bytes: int
    turns: int = field(default=0)

    def ask(self) -> tuple[Any, str, tuple[Any, ...]]:
        """The call that runs the next turn: target, method and arguments."""
        self.turns += 1
        if self.kind == "append":
            said = message(self.turns, self.payload_bytes)
        else:
            asked = text(self.payload_bytes, "question", self.turns)
            said = HumanMessage(asked, id=f"human-{self.turns}")
        return self.graph, "invoke", ({CHANNEL: [said]}, self.config)

    def turn(self) -> Any:
        """Run the next turn; the final state."""
        target, name, args = self.ask()
        return self.face.call(target, name, *args)

    def grow(self, turns: int) -> None:
        """Run turns until there are that many."""
        while self.turns < turns:
            self.turn()
