"""An `Overwrite` that is the first write to an empty reducer channel is stored as it is.

`BinaryOperatorAggregate.update` takes the first value of an empty channel without a look
at it. A channel is empty to begin with if its type cannot be called without arguments, a
union for example. Two `Overwrite`s in one superstep are not noticed either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch, require

__all__ = ["DEFECT"]

_BINOP = "langgraph.channels.binop"


def _probe() -> Finding:
    from langgraph.channels.binop import BinaryOperatorAggregate
    from langgraph.types import Overwrite

    channel: Any = BinaryOperatorAggregate(dict | None, lambda _old, new: new)  # type: ignore[arg-type]
    channel.key = "probe"
    channel.update([Overwrite({"k": 1})])
    value = channel.get()
    return Finding(value != {"k": 1}, f"Overwrite({{'k': 1}}) to an empty channel reads {value!r}")


def _update(
    wrapped: Callable[..., bool], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Treat the empty channel as a full one if the first value replaces whatever it holds."""
    from langgraph._internal._typing import MISSING
    from langgraph.channels.binop import _get_overwrite

    values = args[0] if args else kwargs.get("values")
    if values and instance.value is MISSING and _get_overwrite(values[0])[0]:
        instance.value = None
    return wrapped(*args, **kwargs)


def _check() -> None:
    require("langgraph._internal._typing", "MISSING")
    require(_BINOP, "_get_overwrite")


DEFECT = Defect(
    slug="overwrite-first-write",
    symptom="the first Overwrite to an empty reducer channel is stored with its wrapper",
    upstream=("langgraph#4380", "langgraph#6909", "langgraph#9017"),
    distribution="langgraph",
    probe=_probe,
    remedy=patch(
        Site(_BINOP, "BinaryOperatorAggregate.update", _update, takes=("values",)),
        check=_check,
        text="Write a plain value first, or give the channel a type that can be called "
        "without arguments.",
    ),
    severity="corrupts",
)
