"""A checkpoint is kept although the delta writes it is made of could not be stored.

LangGraph before 1.2.15 waits for the writes without looking at what became of them. The run
raises, and whoever reads the thread afterwards finds a state without them.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding, InWrapper, Presence
from deerflow_saver.fixes._looking import look

__all__ = ["DEFECT", "here"]


def _probe() -> Finding:
    """A run whose delta writes fail: is its checkpoint there afterwards?"""
    from deerflow_saver.fixes._scenes import Saver, compiled, said, thread

    class Full(Exception):  # noqa: N818 - the storage of the scene is
        pass

    class Failing(Saver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            if any(channel == "log" for channel, _ in writes):
                raise Full
            super().put_writes(config, writes, task_id, task_path)

    saver = Failing()
    graph = compiled({"node": lambda _: said("out")}, saver=saver)
    with contextlib.suppress(Full):
        graph.invoke(said("in"), thread(), durability="sync")
    kept = len(saver.storage["probe"][""]) - 1  # the input's is there before anything fails
    return Finding(kept > 0, f"{kept} checkpoints kept that build on writes that failed")


DEFECT = Defect(
    slug="failed-writes-kept-checkpoint",
    symptom="after a failed run a checkpoint is there whose messages are missing",
    upstream=("langgraph#8234",),
    distribution="langgraph",
    probe=_probe,
    remedy=InWrapper(
        "The wrapper remembers that a run's put_writes failed and refuses the checkpoints of that "
        "run that build on it (`LostWritesError`)."
    ),
    severity="loses",
)


@functools.cache
def here() -> bool:
    """Whether LangGraph behaves like that in this process; seen once."""
    return look(DEFECT).presence is not Presence.ABSENT
