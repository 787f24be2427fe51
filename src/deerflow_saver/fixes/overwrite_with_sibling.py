"""An `Overwrite` and another task's write in one superstep: live and reload differ."""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]

_SIBLINGS, _RUNS = 5, 4


def _probe() -> Finding:
    """Several times: a reload goes by task ids, which may put the `Overwrite` last by chance."""
    from langgraph.types import Overwrite

    from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

    nodes: dict[str, Any] = {f"n{i}": lambda _state: said("s") for i in range(_SIBLINGS)}
    nodes["ow"] = lambda _state: {"log": Overwrite(["OW"]), "ref": Overwrite(["OW"])}
    graph = compiled(nodes)
    names = [f"run {i}" for i in range(_RUNS)]
    for name in names:
        graph.invoke(said("in"), thread(name))
    return agreement(**{name: graph.get_state(thread(name)).values for name in names})


DEFECT = Defect(
    slug="overwrite-with-sibling",
    symptom="writes that an Overwrite of the same step dropped are back after a reload",
    upstream=("langgraph#8821",),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "Update langgraph (1.2.7 or newer). Until then, let a node that returns an Overwrite "
        "run in a step of its own."
    ),
    severity="corrupts",
)
