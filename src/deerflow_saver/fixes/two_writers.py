"""Two runs, or a run and an update, on one thread at one time mix their branches.

Nothing locks a thread, and both children hang on one parent.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding, RefusedByGuard

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """An update that is stored while a node of a run is at work."""
    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    def node(state: Any) -> Any:
        if state["ref"][-1] == "in2":
            graph.update_state(thread(), said("U"), as_node="node")
        return said("out")

    graph = compiled({"node": node})
    graph.invoke(said("in1"), thread())
    graph.invoke(said("in2"), thread())
    return agreement(
        **{f"checkpoint {i}": s.values for i, s in enumerate(graph.get_state_history(thread()))}
    )


DEFECT = Defect(
    slug="two-writers",
    symptom="two requests for one thread at one time both return, and their turns are mixed",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=RefusedByGuard("The guard lets the first writer store, and refuses the other one."),
    severity="corrupts",
)
