"""Writes of parallel tasks replay in the order of task ids, which are hashes.

LangGraph applies them by task path. Savers before langgraph-checkpoint 4.3.0, -sqlite 3.1.2
and -postgres 3.1.3 sort by `(task_id, idx)`; new releases of langgraph accept old savers.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, InWrapper
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import loses_order

__all__ = ["DEFECT"]

DEFECT = Defect(
    slug="parallel-write-order",
    symptom="after a reload, the messages of parallel tasks are in another order",
    upstream=("langgraph#8382",),
    distribution="langgraph-checkpoint",
    probe=seen_on(loses_order, "memory", "sqlite", "postgres"),
    remedy=InWrapper(
        "Memory and Postgres savers store the path: the wrapper sorts by it. SQLite savers before "
        "3.1.2 have no column for it: the wrapper remembers the paths of the last 8192 "
        "checkpoints written through it, and what another process wrote stays as it is; update "
        "langgraph-checkpoint-sqlite to 3.1.2 or newer."
    ),
    severity="corrupts",
    savers=frozenset({"memory", "sqlite", "postgres"}),
)
