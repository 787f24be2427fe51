"""`prune` empties delta threads that it does not recognise.

`keep_latest` refuses threads with update counters or snapshots. Threads that only
`update_state` wrote to, under langgraph 1.2.5 to 1.2.7, have neither.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, Finding, InWrapper
from deerflow_saver.walks.scenes import prunes

__all__ = ["DEFECT"]


def _probe() -> Finding:
    from langgraph.checkpoint.postgres import PostgresSaver

    pruned = prunes(PostgresSaver)
    return Finding(pruned, f"a delta thread without counters is {'pruned' if pruned else 'kept'}")


DEFECT = Defect(
    slug="prune-of-delta-thread",
    symptom="after prune, an old thread's delta channels are empty",
    upstream=(),
    distribution="langgraph-checkpoint-postgres",
    probe=_probe,
    remedy=InWrapper(
        "The wrapper's prune looks for written channels that no checkpoint stores, and refuses "
        "(PrunedHistoryError) before anything is deleted."
    ),
    severity="loses",
    savers=frozenset({"postgres"}),
)
