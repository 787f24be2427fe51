"""A thread written with a delta channel reads empty through a graph whose channel is plain."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    from deerflow_saver.fixes._scenes import Saver, compiled, said, thread

    schema: Any = TypedDict("schema", {"log": Annotated[list[str], operator.add]})
    saver = Saver()
    compiled({"node": lambda _state: said("out")}, saver=saver).invoke(said("in"), thread())
    plain = compiled({"node": lambda _state: {}}, schema=schema, saver=saver)
    log = plain.get_state(thread()).values.get("log")
    return Finding(log != ["in", "out"], f"delta ['in', 'out'], read by a plain channel {log}")


DEFECT = Defect(
    slug="delta-read-as-plain",
    symptom="going back from a delta to a plain channel, old threads read empty",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "Update langgraph (1.2.16 or newer). Until then, read each thread through the delta graph, "
        "and write the value through the plain one: update_state with an Overwrite."
    ),
    severity="loses",
)
