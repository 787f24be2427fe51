"""Compacts under LANGGRAPH_STRICT_MSGPACK=true, which is read when LangGraph loads."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde._msgpack import STRICT_MSGPACK_ENABLED
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.channel_mode import with_checkpoint_mode
from deerflow_saver.state import (
    CheckpointStateAccessor,
    adapt_state_schema_for_mode,
    compact_thread,
)
from support.modes import thread
from support.strict import Note


class State(TypedDict):
    """Lists of a type of the application's."""

    messages: Annotated[list[Note], operator.add]
    facts: Annotated[list[Note], operator.add]
    summary_text: str


def main() -> None:
    """Print what the thread holds after it, in either mode and by either kind of saver."""
    for mode in ("full", "delta"):
        for wrap in (CachedHistorySaver, lambda saver: saver):
            schema = adapt_state_schema_for_mode(State, mode, channels=("messages", "facts"))
            builder = StateGraph(schema)
            builder.add_node("step", lambda s: {} if s["facts"] else {"facts": [Note("fact")]})
            builder.add_edge(START, "step")
            accessor = CheckpointStateAccessor.bind(
                builder.compile(), wrap(InMemorySaver()), mode=mode
            )
            config = with_checkpoint_mode(thread(), mode)
            for number in range(3):
                accessor.graph.invoke({"messages": [Note(f"input {number}")]}, config)
            compact_thread(accessor, "1", summarize=lambda _: "s", keep=1)
            accessor.graph.invoke({"messages": [Note("last")]}, config)
            values = accessor.get(thread()).values
            print(STRICT_MSGPACK_ENABLED, (values["facts"], values["messages"]))  # noqa: T201


if __name__ == "__main__":
    main()
