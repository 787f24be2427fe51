"""A delta channel on a union type cannot be loaded: its type is called to make a value."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    from langgraph.channels.delta import DeltaChannel

    from deerflow_saver.fixes._scenes import compiled, extend, thread

    words: Any = Annotated[list[str] | None, DeltaChannel(extend)]
    schema: Any = TypedDict("schema", {"log": words})
    try:
        graph = compiled({"node": lambda _state: {"log": ["out"]}}, schema=schema)
        log = graph.invoke({"log": ["in"]}, thread())["log"]
    except TypeError as error:
        return Finding(present=True, evidence=f"list | None: TypeError: {error}")
    return Finding(log != ["in", "out"], f"list | None reads {log}")


DEFECT = Defect(
    slug="delta-on-union",
    symptom="a graph with a delta channel on `X | None` raises TypeError at its first load",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice("Declare the bare type: Annotated[list, DeltaChannel(...)]; it starts empty."),
    severity="raises",
)
