"""A saver whose `put_writes` hides `task_path` among `*args` is not given it.

LangGraph looks for the name in the method's signature. A wrapping saver that passes
`*args, **kwargs` on loses the order of parallel tasks' writes with it.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding, InWrapper

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """How many arguments does a wrapping saver's `put_writes` get?"""
    from deerflow_saver.fixes._scenes import Saver, compiled, said, thread

    counts = set[int]()

    class Passing(Saver):
        def put_writes(self, *args: Any, **kwargs: Any) -> None:
            counts.add(len(args) + len(kwargs))
            super().put_writes(*args, **kwargs)

    graph = compiled({"node": lambda _: said("out")}, saver=Passing())
    graph.invoke(said("in"), thread(), durability="sync")
    return Finding(max(counts) < 4, f"put_writes(*args) is given {max(counts)} arguments of 4")  # noqa: PLR2004


DEFECT = Defect(
    slug="star-args-wrapper",
    symptom="below a saver of your own, the messages of parallel tasks are in another order",
    upstream=("langgraph#8382",),
    distribution="langgraph",
    probe=_probe,
    remedy=InWrapper(
        "The wrapper's own put_writes names task_path and passes it on to a saver that takes "
        "*args; one that takes no fourth argument is named in a log warning. A saver of your own "
        "that is not wrapped: def put_writes(self, config, writes, task_id, task_path='')."
    ),
    severity="corrupts",
)
