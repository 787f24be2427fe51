"""An `Overwrite` that went through JSON is stored as an ordinary value.

`{"value": ..., "type": "__overwrite__"}` is what a JSON encoder makes of the dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch

__all__ = ["DEFECT"]

_TYPE = "__overwrite__"


def _probe() -> Finding:
    from langgraph.channels.binop import BinaryOperatorAggregate
    from langgraph.channels.delta import DeltaChannel

    from deerflow_saver.fixes._scenes import extend

    channels: tuple[Any, ...] = (
        BinaryOperatorAggregate(list, lambda old, new: [*old, *new]),
        DeltaChannel(extend, list).from_checkpoint(None),
    )
    for channel in channels:
        channel.key = "probe"
        channel.update([["a"]])
        channel.update([{"value": ["b"], "type": _TYPE}])
    plain, delta = (channel.get() for channel in channels)
    return Finding(
        plain != ["b"] or delta != ["b"],
        f"['a'] overwritten by ['b'] reads {plain!r}, in a delta channel {delta!r}",
    )


def _get_overwrite(
    wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    value = args[0] if args else kwargs.get("value")
    if isinstance(value, dict) and value.get("type") == _TYPE and "value" in value:
        return True, value["value"]
    return wrapped(*args, **kwargs)


DEFECT = Defect(
    slug="overwrite-json-form",
    symptom="an Overwrite sent through JSON lands in the state as a dict",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=patch(
        Site("langgraph.channels.binop", "_get_overwrite", _get_overwrite, takes=("value",)),
        Site("langgraph.channels.delta", "_get_overwrite", _get_overwrite, takes=("value",)),
        text="Make an Overwrite of the dict where requests come in.",
    ),
    severity="corrupts",
)
