"""A fork and the branch it leaves read each other's delta writes.

A superstep's writes are stored under its parent checkpoint, and nothing says which child
consumed them. LangGraph makes a fork's first checkpoint a snapshot from 1.2.13 on.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, Finding, RefusedByGuard

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """Fork by an update at a turn's end, and by time travel to the middle of a run."""
    from deerflow_saver.fixes._scenes import agreement, chain, compiled, said, thread

    graph = compiled({"node": lambda _state: said("out")})
    graph.invoke(said("in1"), thread())
    base = graph.get_state(thread()).config
    graph.invoke(said("in2"), thread())
    old = graph.get_state(thread()).config
    graph.update_state(base, said("U"), as_node="node")
    read = {"old": graph.get_state(old).values, "fork": graph.get_state(thread()).values}
    graph = chain(first=lambda _state: said("a"), second=lambda _state: said("b"))
    graph.invoke(said("in"), thread("travel"))
    middle = next(s for s in graph.get_state_history(thread("travel")) if s.next == ("second",))
    graph.invoke(None, middle.config)
    return agreement(**read, travel=graph.get_state(thread("travel")).values)


DEFECT = Defect(
    slug="fork-replays-branch",
    symptom="after a fork, a branch shows what the other one wrote",
    upstream=("langgraph#8443", "langgraph#8551"),
    distribution="langgraph",
    probe=_probe,
    remedy=RefusedByGuard(
        "The guard refuses the fork (NonHeadWriteError), before anything of it is stored."
    ),
    severity="corrupts",
)
