"""The demo's agent: a model node and a tools node in a loop, as agents usually are.

Only the model is made up: it answers by a script, so that the same turns can be run twice.
What it says depends on everything it was shown, and so a state that was loaded wrongly
shows in every later message.
"""

# Without `from __future__ import annotations`: LangGraph reads the state's annotation, whose
# channel is only known inside a function.
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

__all__ = ["CHANNEL", "CONFIG", "Graph", "build_agent", "question"]

Graph = CompiledStateGraph[Any, Any, Any, Any]

CHANNEL = "messages"
CONFIG: RunnableConfig = {"configurable": {"thread_id": "demo"}}
"""Every run has databases of its own, so one thread's name serves them all."""

_TOPICS = ("weather", "traffic", "prices")
"""One tool call each, all in the same superstep."""


def append_messages(
    state: list[AnyMessage], writes: Sequence[list[AnyMessage]]
) -> list[AnyMessage]:
    """Add messages; one whose id is known takes the old one's place. Linear in both."""
    by_id = {message.id: message for message in state}
    for write in writes:
        by_id.update((message.id, message) for message in write)
    return list(by_id.values())


def build_agent(
    saver: BaseCheckpointSaver[Any], *, snapshot_frequency: int, payload_bytes: int
) -> Graph:
    """The compiled agent on `saver`; both sides of a comparison get the same one."""

    class AgentState(TypedDict):
        messages: Annotated[
            list[AnyMessage],
            DeltaChannel(append_messages, snapshot_frequency=snapshot_frequency),
        ]

    def model(state: AgentState) -> dict[str, list[AnyMessage]]:
        return {CHANNEL: [_answer(state["messages"], payload_bytes)]}

    def call_tools(state: AgentState) -> list[Send] | str:
        last = state["messages"][-1]
        calls = last.tool_calls if isinstance(last, AIMessage) else []
        # A task for each call: they run in parallel and store their writes in parallel.
        return [Send("tools", [call]) for call in calls] or END

    builder = StateGraph(AgentState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([_lookup(payload_bytes)]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", call_tools, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def question(turn: int, payload_bytes: int) -> dict[str, list[AnyMessage]]:
    """The user's input of one turn."""
    name = f"question-{turn}"
    return {CHANNEL: [HumanMessage(_text(name, payload_bytes), id=name)]}


def _answer(messages: Sequence[AnyMessage], payload_bytes: int) -> AIMessage:
    turn = sum(isinstance(message, HumanMessage) for message in messages)
    if isinstance(messages[-1], HumanMessage):
        calls = [_call(turn, topic) for topic in _TOPICS]
        return AIMessage("", id=f"calls-{turn}", tool_calls=calls)
    characters = sum(len(message.content) for message in messages)
    name = f"answer-{turn} to {len(messages)} messages of {characters} characters"
    return AIMessage(_text(name, payload_bytes), id=f"answer-{turn}")


def _call(turn: int, topic: str) -> Any:
    return {
        "name": "lookup",
        "args": {"topic": topic, "turn": turn},
        "id": f"call-{turn}-{topic}",
        "type": "tool_call",
    }


def _lookup(payload_bytes: int) -> BaseTool:
    @tool
    def lookup(
        topic: str, turn: int, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> ToolMessage:
        """Look a topic up."""
        content = _text(f"{topic}-{turn}", payload_bytes)
        # An id that both sides give, where LangGraph would draw one.
        return ToolMessage(
            content, name="lookup", tool_call_id=tool_call_id, id=f"result-{tool_call_id}"
        )

    return lookup


def _text(name: str, size: int) -> str:
    """`size` characters: the name, then digits no database can compress away."""
    digits = hashlib.shake_256(name.encode()).hexdigest(size // 2 + 1)
    return f"{name}: {digits}"[:size]
