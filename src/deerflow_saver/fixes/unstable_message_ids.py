"""A message written without an id has another one at every read, or none.

A delta channel replays its writes through the reducer at every read, and what the reducer
makes of an id-less write is new each time. LangGraph gives ids before it stores a write
(`ensure_message_ids`), from 1.2.15 on in every form its own reducer takes; for a reducer of
one's own, strings, pairs and dicts in an `Overwrite` are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch, require

__all__ = ["DEFECT"]

_TAKES = ("channels", "writes")


def _probe() -> Finding:
    from deerflow_saver.fixes._message_scenes import without_ids

    return without_ids()


def _ensure(
    wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Before LangGraph's own look at the writes, which replaces them in place as well."""
    _name(*args, **kwargs)
    return wrapped(*args, **kwargs)


def _name(channels: Mapping[str, Any], writes: Any) -> None:
    from langgraph.channels.delta import DeltaChannel

    for index, (channel, value) in enumerate(writes):
        spec = channels.get(channel)
        if isinstance(spec, DeltaChannel) and not _langgraphs(spec.reducer):
            from deerflow_saver.fixes._naming import named

            new = named(spec, value)
            if new is not value:
                writes[index] = (channel, new)


def _langgraphs(reducer: Any) -> bool:
    from langgraph.pregel._messages import _messages_delta_reducer

    return reducer is _messages_delta_reducer


def _check() -> None:
    require("langgraph.pregel._messages", "_messages_delta_reducer")
    require("langgraph.channels.binop", "_get_overwrite")


DEFECT = Defect(
    slug="unstable-message-ids",
    symptom="a message has another id at every read, so that nothing can address it",
    upstream=("langgraph#7913",),
    distribution="langgraph",
    probe=_probe,
    remedy=patch(
        Site("langgraph.pregel._loop", "ensure_message_ids", _ensure, takes=_TAKES),
        Site("langgraph.pregel.main", "ensure_message_ids", _ensure, takes=_TAKES),
        check=_check,
        text="Give messages their ids before they are written.",
    ),
    severity="corrupts",
)
