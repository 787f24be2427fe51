"""Postgres: a plain value from before a channel was delta is walked past.

Savers before 3.1.2 look for the marker that only snapshots leave. A value kept in its own
row is replayed from the thread's first write on, one kept in the checkpoint is lost.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, InWrapper
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import skips_plain_seed

__all__ = ["DEFECT"]

DEFECT = Defect(
    slug="postgres-plain-seed",
    symptom="a thread that turned from full to delta is replayed from its first write",
    upstream=("langgraph#8534",),
    distribution="langgraph-checkpoint-postgres",
    probe=seen_on(skips_plain_seed, "postgres"),
    remedy=InWrapper(
        "After a walk that found no stored value, the wrapper asks whether the thread stores one "
        "for the channel, and then takes the base class's walk."
    ),
    severity="loses",
    savers=frozenset({"postgres"}),
)
