"""Goes back under LANGGRAPH_STRICT_MSGPACK=true, which is read when LangGraph loads."""

from __future__ import annotations

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde._msgpack import STRICT_MSGPACK_ENABLED
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import prepare_run
from support.modes import thread
from support.strict import Knowing, Note


def main() -> None:
    """Print what the thread holds after it went back, by either kind of saver."""
    for wrap in (CachedHistorySaver, lambda saver: saver):
        builder = StateGraph(Knowing)
        builder.add_node("step", lambda _: {"facts": {"a": Note("fact")}})
        builder.add_edge(START, "step")
        graph = builder.compile(checkpointer=wrap(InMemorySaver()))
        for number in range(2):
            graph.invoke({"log": [Note(f"input {number}")]}, thread())
        settled = [state for state in graph.get_state_history(thread()) if not state.next][1]
        graph.invoke(*prepare_run(graph, settled.config, {"log": [Note("again")]}))
        print(STRICT_MSGPACK_ENABLED, graph.get_state(thread()).values)  # noqa: T201


if __name__ == "__main__":
    main()
