"""A step of which one task finished and another paused or failed, and then a new input.

The finished task's write is dropped, and comes back at the next read.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """A pause, then a new input; a pause, then an update; a failure, then a new input."""
    from langgraph.types import interrupt

    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    def ask(state: Any) -> Any:
        if state["ref"] == ["fail"]:
            raise _NoAnswerError
        return said("ans-" + interrupt("q")) if state["ref"] == ["in"] else said("later")

    graph = compiled({"a": lambda _state: said("done"), "b": ask})
    for name in ("input", "update"):
        graph.invoke(said("in"), thread(name))
    graph.invoke(said("in2"), thread("input"))
    graph.update_state(thread("update"), said("U"), as_node="b")
    try:
        graph.invoke(said("fail"), {**thread("failure"), "max_concurrency": 1})
    except _NoAnswerError:
        graph.invoke(said("in2"), thread("failure"))
    names = ("input", "update", "failure")
    return agreement(**{name: graph.get_state(thread(name)).values for name in names})


class _NoAnswerError(Exception):
    """What the node fails with."""


DEFECT = Defect(
    slug="half-finished-step",
    symptom="an output that was dropped with its half-finished step is back after a reload",
    upstream=("langgraph#8443",),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "Update langgraph (1.2.15 or newer). Until then, finish a paused or failed step (answer "
        "it, or run it again with invoke(None, thread)) before anything else on the thread."
    ),
    severity="corrupts",
)
