"""`list` and `alist` keep the saver's lock while their consumer is at work.

A write in the body of `async for row in saver.alist(...)` waits for ever, and every other
call of the saver waits until the loop is over. Upstream names `AsyncSqliteSaver.alist`; the
listings of all four SQL savers do it, on both faces.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, InWrapper
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import Sight
from deerflow_saver.walks.scenes import holds_lock

__all__ = ["DEFECT"]


def _look(cls: type) -> Sight:
    locked = holds_lock(cls)
    read = f"the lock is {'held' if locked else 'free'} between two rows"
    return Sight(locked, "the lock is free between two rows", read)


DEFECT = Defect(
    slug="alist-holds-lock",
    symptom="a write inside a loop over list or alist never returns",
    upstream=("langgraph#8558",),
    distribution="langgraph-checkpoint-sqlite",
    probe=seen_on(_look, "sqlite", "postgres"),
    remedy=InWrapper(
        "The wrapper reads listings by pages of at most 64 rows and holds no lock between them."
    ),
    severity="raises",
    savers=frozenset({"sqlite", "postgres"}),
)
