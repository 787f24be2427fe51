"""Compacts under LANGGRAPH_STRICT_MSGPACK=true, which is read when LangGraph loads."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde._msgpack import STRICT_MSGPACK_ENABLED
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.channel_mode import with_checkpoint_mode
from deerflow_saver.state import (
    CheckpointStateAccessor,
    Compaction,
    CompactionRequest,
    compact_thread,
)
from support.modes import thread
from support.strict import Knowing, Note


class Full(TypedDict):
    """`Knowing` in full mode."""

    log: Annotated[list[Note], operator.add]
    facts: Annotated[dict[str, Note], operator.or_]


def shortened(request: CompactionRequest) -> Compaction:
    """No summary, only fewer items."""
    return Compaction(request.to_preserve)


def main() -> None:
    """Print what the thread holds after it, in either mode and by either kind of saver."""
    modes: Any = {"full": Full, "delta": Knowing}
    for mode, schema in modes.items():
        for wrap in (CachedHistorySaver, lambda saver: saver):
            builder = StateGraph(schema)
            builder.add_node("step", lambda _: {"facts": {"a": Note("fact")}})
            builder.add_edge(START, "step")
            saver = wrap(InMemorySaver())
            graph = builder.compile(checkpointer=saver)
            accessor = CheckpointStateAccessor(graph, saver, mode)
            config = with_checkpoint_mode(thread(), mode)
            for number in range(3):
                graph.invoke({"log": [Note(f"input {number}")]}, config)
            compact_thread(accessor, "1", summarize=shortened, keep=1, channel="log")
            graph.invoke({"log": [Note("last")]}, config)
            print(STRICT_MSGPACK_ENABLED, graph.get_state(thread()).values)  # noqa: T201


if __name__ == "__main__":
    main()
