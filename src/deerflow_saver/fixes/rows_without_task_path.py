"""A step that an old release left half finished replays out of order when a new one ends it.

Releases of langgraph-checkpoint-sqlite before 3.1.2 stored no task path. Their rows sort
before all others, and nothing that is stored tells where they belong.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Advice, Defect
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import Sight
from deerflow_saver.walks.scenes import Scene, Write, replay

__all__ = ["DEFECT"]


def _look(cls: type) -> Sight:
    """The second of two parallel tasks was stored without a path, then the first with one."""
    scene = Scene([("1", None), ("2", "1")], [Write("1", "a"), Write("1", "b", "~pull, 1")], "2")
    read = replay(cls, scene)
    return Sight(read != ["b", "a"], ["b", "a"], read)


DEFECT = Defect(
    slug="rows-without-task-path",
    symptom="a thread that was paused during an update of the SQLite saver is out of order",
    upstream=("langgraph#8382",),
    distribution="langgraph-checkpoint-sqlite",
    probe=seen_on(_look, "sqlite"),
    remedy=Advice(
        "Before langgraph-checkpoint-sqlite is updated from a release before 3.1.2, let paused "
        "and failed steps of parallel tasks end. Threads that may be concerned: SELECT DISTINCT "
        "thread_id FROM writes WHERE task_path = '' AND task_id <> "
        "'00000000-0000-0000-0000-000000000000'. Postgres has stored the path since 3.1.0."
    ),
    severity="corrupts",
    savers=frozenset({"sqlite"}),
)
