"""A delta channel reads empty where the graph has no checkpointer of its own.

That is a subgraph, or a graph that is given its saver by the config. `update_state` then
stores the emptiness.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """A paused subgraph, and a saver in the config."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    from deerflow_saver.fixes._scenes import Saver, State, agreement, compiled, said, thread

    def build(nodes: dict[str, Any]) -> Any:
        builder: Any = StateGraph(State)
        for name, node in nodes.items():
            builder.add_node(name, node)
            builder.add_edge(START, name)
            builder.add_edge(name, END)
        return builder.compile()

    inner = build({"ask": lambda _state: said("ans-" + interrupt("q"))})
    outer = compiled({"inner": inner})
    outer.invoke(said("in"), thread())
    paused = outer.get_state(thread(), subgraphs=True).tasks[0].state
    graph = build({"node": lambda _state: said("out")})
    given = {"configurable": {"thread_id": "given", "__pregel_checkpointer": Saver()}}
    graph.invoke(said("in"), given)
    return agreement(subgraph=getattr(paused, "values", {}), config=graph.get_state(given).values)


DEFECT = Defect(
    slug="subgraph-hydration",
    symptom="a subgraph's delta channels read empty, and update_state makes them so",
    upstream=("langgraph#8470", "langgraph#8653"),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "Update langgraph (1.2.13 or newer). Until then, compile each graph with its "
        "checkpointer, and neither read nor update a subgraph's state from outside."
    ),
    severity="loses",
)
