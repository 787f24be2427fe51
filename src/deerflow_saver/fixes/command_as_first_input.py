"""A `Command` with an update as the very first input of a thread.

Nothing is resumed, so the `Command` is applied as a `Command` and as input: twice live and
in plain channels, once in what a delta channel stores.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    from langgraph.types import Command

    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    graph = compiled({"node": lambda _state: said("out")})
    live = graph.invoke(Command(update=said("u")), thread())
    return agreement(live=live, reload=graph.get_state(thread()).values)


DEFECT = Defect(
    slug="command-as-first-input",
    symptom="a Command as a thread's first input applies twice live, and once after a reload",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice("Begin a thread with plain input: invoke(values), not invoke(Command(...))."),
    severity="corrupts",
)
