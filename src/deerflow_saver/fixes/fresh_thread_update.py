"""`update_state` as the first thing on a thread loses its delta writes.

There is no parent checkpoint to file them under.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    graph = compiled({"node": lambda _state: said("out")})
    graph.update_state(thread(), said("U"), as_node="node")
    return agreement(reload=graph.get_state(thread()).values)


DEFECT = Defect(
    slug="fresh-thread-update",
    symptom="update_state on a new thread loses its delta writes",
    upstream=("langgraph#8011",),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice("Update langgraph (1.2.5 or newer). Until then, begin a thread with a run."),
    severity="loses",
)
