"""A `Command`'s update is stored in two places and applied twice after a reload.

The null task's list of writes is saved again with every `Command` before the next
checkpoint, and its entries move.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """Two `Command`s on one paused head, and two on one finished head."""
    from langgraph.types import Command, interrupt

    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    asking = compiled({"ask": lambda _state: said("ans-" + interrupt("q") + interrupt("r"))})
    asking.invoke(said("in"), thread())
    for i in (1, 2):
        asking.invoke(Command(resume=f"{i}", update=said(f"U{i}")), thread())
    plain = compiled({"node": lambda _state: said("out")})
    plain.invoke(said("in"), thread())
    plain.invoke(Command(resume="x", update=said("U1")), thread())
    plain.invoke(Command(update=said("U2"), goto="node"), thread())
    return agreement(
        paused=asking.get_state(thread()).values, finished=plain.get_state(thread()).values
    )


DEFECT = Defect(
    slug="command-saved-twice",
    symptom="the update of a Command shows twice after a reload",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "Update langgraph (1.2.16 or newer). Until then, send updates by update_state or as "
        "input, not in Commands that follow one another on one checkpoint."
    ),
    severity="corrupts",
)
