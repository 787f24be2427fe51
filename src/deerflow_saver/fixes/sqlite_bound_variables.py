"""SQLite: a history with many channels or ancestors raises.

The walk binds one variable for each channel and ancestor, and SQLite allows 32766 of them
(999 before 3.32): eight delta channels after 4100 supersteps without a snapshot, for example.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, InWrapper
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import few_variables_fail

__all__ = ["DEFECT"]

DEFECT = Defect(
    slug="sqlite-bound-variables",
    symptom="loading a long thread raises OperationalError('too many SQL variables')",
    upstream=(),
    distribution="langgraph-checkpoint-sqlite",
    probe=seen_on(few_variables_fail, "sqlite"),
    remedy=InWrapper(
        "Where that error comes, the wrapper asks for half of the channels at a time, and for a "
        "single channel takes the base class's walk."
    ),
    severity="raises",
    savers=frozenset({"sqlite"}),
)
