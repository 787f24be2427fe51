"""A conversation in either mode, to be compacted."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import interrupt

from deerflow_saver.channel_mode import with_checkpoint_mode
from deerflow_saver.state import CheckpointStateAccessor, adapt_state_schema_for_mode
from support.modes import thread


def merge(current: dict[str, str] | None, update: dict[str, str]) -> dict[str, str]:
    return {**(current or {}), **update}


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], operator.add]
    plan: Annotated[dict[str, str] | None, merge]
    title: str
    summary_text: str
    do: str


class Bare(TypedDict, total=False):
    """No channel for a summary."""

    messages: Annotated[list[AnyMessage], add_messages]


DELTA_CHANNELS = ("messages", "notes", "plan")


class Chat:
    """The graph on a saver, and its turns."""

    def __init__(
        self, mode: Any, saver: Any, state: Any = State, inside: Any = None, **options: Any
    ) -> None:
        self.mode = mode
        schema = adapt_state_schema_for_mode(state, mode, 3, channels=DELTA_CHANNELS)
        builder: Any = StateGraph(schema)
        builder.add_node("answer", self._answer)
        builder.add_node("close", self._close)
        builder.add_edge(START, "answer")
        builder.add_edge(START, "close")
        builder.add_edge("answer", END)
        if inside is not None:
            builder.add_node("inside", inside)
            builder.add_edge("answer", "inside")
        self.whole = "notes" in builder.channels
        assert (type(builder.channels["messages"]) is DeltaChannel) == (mode == "delta")
        self.graph = builder.compile(checkpointer=saver, **options)
        self.accessor = CheckpointStateAccessor.bind(self.graph, saver, mode=mode)

    def _answer(self, state: Any) -> Any:
        turn = state["messages"][-1].id.removeprefix("q-")
        if state.get("do") == "ask":
            turn = interrupt("which?")
        if state.get("do") == "fail":
            raise LookupError("no such model")
        answer = {"messages": [AIMessage(f"answer {turn}", id=f"a-{turn}")]}
        return {**answer, "plan": {turn: "done"}, "title": turn} if self.whole else answer

    def _close(self, state: Any) -> Any:
        return {"notes": [f"note {len(state['messages'])}"]} if self.whole else {}

    def config(self, thread_id: str = "1") -> Any:
        return with_checkpoint_mode(thread(thread_id), self.mode)

    def asked(self, turn: Any, do: str = "") -> Any:
        asked = {"messages": [HumanMessage(f"question {turn}", id=f"q-{turn}")]}
        return {**asked, "do": do} if self.whole else asked

    def take(self, *turns: Any, thread_id: str = "1", do: str = "") -> None:
        for turn in turns:
            self.graph.invoke(self.asked(turn, do), self.config(thread_id))

    async def atake(self, *turns: Any, thread_id: str = "1") -> None:
        for turn in turns:
            await self.graph.ainvoke(self.asked(turn), self.config(thread_id))

    def ids(self, thread_id: str = "1") -> list[str]:
        return ids(self.accessor.get(thread(thread_id)))

    def shown(self, thread_id: str = "1") -> Any:
        """All that readers of the thread are shown."""
        place = thread(thread_id)
        return self.accessor.get(place), self.accessor.history(place)


def ids(state: Any) -> list[str]:
    return [message.id for message in state.values["messages"]]


def count(request: Any) -> str:
    """A summary that tells what it is of."""
    return " ".join(message.id for message in request.to_summarize)
