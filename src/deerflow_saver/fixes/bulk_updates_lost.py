"""Of several updates in one `update_state` superstep, a delta channel keeps the first.

All are filed under one task id (`_update_task_id`, before langgraph 1.2.15), and savers
keep the first value of a (task id, place).
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, Finding, RefusedByGuard

__all__ = ["DEFECT"]

_UPDATES = 4


def _probe() -> Finding:
    from langgraph.types import StateUpdate

    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    graph = compiled({"node": lambda _state: said("out")})
    graph.invoke(said("in"), thread())
    updates = [StateUpdate(said(f"u{i}"), "node") for i in range(_UPDATES)]
    graph.bulk_update_state(thread(), [updates])
    return agreement(reload=graph.get_state(thread()).values)


DEFECT = Defect(
    slug="bulk-updates-lost",
    symptom="of several updates in one superstep of bulk_update_state, all but one are lost",
    upstream=("langgraph#8382",),
    distribution="langgraph",
    probe=_probe,
    remedy=RefusedByGuard(
        "The guard refuses the second update (WriteSlotTakenError). Give each update a superstep "
        "of its own, or update langgraph (1.2.15 or newer)."
    ),
    severity="loses",
)
