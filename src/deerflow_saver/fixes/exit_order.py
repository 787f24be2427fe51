"""Under exit durability, a run of several steps reads back in another order, or twice.

All its writes are filed under one checkpoint, under made-up task ids.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """Parallel tasks, one of which pauses; then the answer, and two steps more."""
    from langgraph.graph import END, START
    from langgraph.types import Command, interrupt

    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    names = [f"n{i}" for i in range(6)]
    nodes: dict[str, Any] = {n: lambda _state, n=n: said(n) for n in names}
    nodes |= {"ask": lambda _state: said("ans-" + interrupt("q")), "then": lambda _s: said("then")}
    first = [*names, "ask"]
    edges = [(START, n) for n in first] + [(n, "then") for n in first] + [("then", END)]
    graph = compiled(nodes, edges)
    graph.invoke(said("in"), thread(), durability="exit")
    graph.invoke(Command(resume="yes"), thread(), durability="exit")
    return agreement(reload=graph.get_state(thread()).values)


DEFECT = Defect(
    slug="exit-order",
    symptom='with durability="exit", a reload shows writes in another order, or twice',
    upstream=("langgraph#8382",),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "Update langgraph (1.2.15 or newer) and the savers. Until then, run graphs with delta "
        'channels under durability="async" (the default) or "sync".'
    ),
    severity="corrupts",
)
