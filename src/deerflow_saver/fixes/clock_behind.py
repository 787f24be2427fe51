"""A turn that ran on a host whose clock is behind is never seen again.

The newest checkpoint is the one with the greatest id, and ids begin with the time.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding, RefusedByGuard

__all__ = ["DEFECT"]

_MINUTES = 36_000_000_000  # in units of 100 ns, as an id counts


def _probe() -> Finding:
    """A checkpoint from an hour ahead, then a turn."""
    from deerflow_saver.fixes._scenes import Saver, compiled, said, thread

    saver = Saver()
    graph = compiled({"node": lambda _state: said("out")}, saver=saver)
    graph.invoke(said("in1"), thread())
    head: Any = saver.get_tuple(thread())
    ahead: Any = {**head.checkpoint, "id": _later(head.checkpoint["id"])}
    saver.put(head.config, ahead, head.metadata, {})
    graph.invoke(said("in2"), thread())
    ref = graph.get_state(thread()).values["ref"]
    return Finding("in2" not in ref, f"after the turn in2, the thread reads {ref}")


def _later(checkpoint_id: str) -> str:
    """A version 6 UUID of an hour later: 48 bits of its time, the version, 12 more bits."""
    digits = checkpoint_id.replace("-", "")
    time = int(digits[:12] + digits[13:16], 16) + _MINUTES
    moved = f"{time:015x}"
    new = f"{moved[:12]}6{moved[12:]}{digits[16:]}"
    return "-".join((new[:8], new[8:12], new[12:16], new[16:20], new[20:]))


DEFECT = Defect(
    slug="clock-behind",
    symptom="a turn that ran on a host with a slow clock returns and is never seen again",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=RefusedByGuard(
        "The guard moves the process's id clock past every loaded id, and refuses a put whose id "
        "is older than the head's."
    ),
    severity="loses",
)
