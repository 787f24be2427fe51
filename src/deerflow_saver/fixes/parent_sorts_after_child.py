"""A walk loses the parent whose id sorts after its child's, and everything before it.

Ids are made from the host's clock. A run on a host whose clock is behind makes children
with lesser ids. SQLite savers before 3.1.2 read ancestors in the order of ids, Postgres
savers from 3.1.3 on read no row whose id is greater than the target's.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, InWrapper
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import loses_late_parents

__all__ = ["DEFECT"]

DEFECT = Defect(
    slug="parent-sorts-after-child",
    symptom="after a run on a host whose clock is behind, earlier messages are missing",
    upstream=("langgraph#8550",),
    distribution="langgraph-checkpoint-postgres",
    probe=seen_on(loses_late_parents, "sqlite", "postgres"),
    remedy=InWrapper(
        "After a walk that found no stored value, the wrapper asks whether a parent on the line "
        "sorts after its child, and then takes the base class's walk. A Postgres head needs no "
        "question. The guard refuses to store such a child (`backwards`)."
    ),
    severity="loses",
    savers=frozenset({"sqlite", "postgres"}),
)
