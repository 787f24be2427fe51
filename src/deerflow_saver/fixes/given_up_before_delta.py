"""A step given up in full mode, before a channel's first value, and then delta mode.

The writes of its finished tasks are still rows of its checkpoint. No step applied them, and no
checkpoint stores a value of the channel, so a walk finds no seed below them and takes them in.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from deerflow_saver.fixes._fix import Defect, Finding, InWrapper

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """A pause that is given up, a channel that turns delta, and its first value."""
    from langgraph.types import interrupt

    from deerflow_saver.fixes._scenes import Saver, State, agreement, compiled, said, thread

    plain: Any = Annotated[list[str], operator.add]
    before: Any = TypedDict("before", {"log": plain, "ref": plain, "other": int}, total=False)
    said_by = {1: said("given up"), 3: said("first")}
    nodes = {
        "a": lambda state: said_by.get(state["other"], {}),
        "b": lambda state: {} if state["other"] > 1 else said(interrupt("q")),
    }
    saver = Saver()
    full = compiled(nodes, schema=before, saver=saver)
    for number in (1, 2):
        full.invoke({"other": number}, thread())
    delta = compiled(nodes, schema=State, saver=saver)
    delta.invoke({"other": 3}, thread())
    return agreement(thread=delta.get_state(thread()).values)


DEFECT = Defect(
    slug="given-up-before-delta",
    symptom="what a given-up step wrote in full mode shows after the channel turned delta",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=InWrapper(
        "At a checkpoint of full mode that has no version of a channel, the channel's history is "
        "empty: the wrapper's walk ends there, whatever older checkpoints own."
    ),
    severity="corrupts",
)
