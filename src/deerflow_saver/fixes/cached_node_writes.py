"""The delta writes of a node that is answered from LangGraph's node cache are not stored."""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """Two runs, the second of which finds the node's answer in the cache."""
    from langgraph.cache.memory import InMemoryCache
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import CachePolicy

    from deerflow_saver.fixes._scenes import Saver, State, agreement, said, thread

    def key(_state: object) -> str:
        return "always"

    builder: Any = StateGraph(State)
    builder.add_node("node", lambda _state: said("c"), cache_policy=CachePolicy(key_func=key))
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    graph = builder.compile(checkpointer=Saver(), cache=InMemoryCache())
    for i in (1, 2):
        graph.invoke(said(f"in{i}"), thread())
    return agreement(reload=graph.get_state(thread()).values)


DEFECT = Defect(
    slug="cached-node-writes",
    symptom="what a node with a cache policy answered from its cache is lost on reload",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "Update langgraph (1.2.15 or newer). Until then, give nodes that write delta channels no "
        "cache policy."
    ),
    severity="loses",
)
