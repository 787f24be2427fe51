"""From JSON to what a graph's channels hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from fastapi import HTTPException
from langchain_core.messages import AnyMessage
from langgraph.graph import add_messages
from langgraph.graph.message import _messages_delta_reducer
from pydantic import TypeAdapter, ValidationError

from deerflow_saver.state.messages import merge_message_writes

__all__ = ["storable"]

_UNPORTABLE = re.compile("[\x00\ud800-\udfff]")
_OF_MESSAGES = (add_messages, merge_message_writes, _messages_delta_reducer)
_MESSAGE: TypeAdapter[Any] = TypeAdapter(AnyMessage)


def storable(accessor: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with messages as messages.

    Raises:
        HTTPException: 422, for what is no message where one is wanted, or cannot be stored.

    """
    for name, value in values.items():
        _refuse_unportable(name, value)
    found = {
        name: _messages(name, value) if _holds_messages(accessor.graph, name) else value
        for name, value in values.items()
    }
    for name, value in found.items():
        try:
            accessor.checkpointer.serde.dumps_typed(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise HTTPException(422, f"{name} cannot be stored: {error}") from error
    return found


def _refuse_unportable(name: str, value: Any) -> None:
    """What one database takes and another fails at, as Postgres does at a NUL in its JSON."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend([*item, *item.values()])
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str) and _UNPORTABLE.search(item):
            raise HTTPException(422, f"{name} holds text with a NUL or half a surrogate pair")
        elif isinstance(item, float) and not math.isfinite(item):
            raise HTTPException(422, f"{name} holds a number that is none in JSON")


def _holds_messages(graph: Any, name: str) -> bool:
    channel = graph.channels.get(name)
    reducer = getattr(channel, "operator", None) or getattr(channel, "reducer", None)
    return reducer in _OF_MESSAGES


def _messages(name: str, value: Any) -> Any:
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    try:
        return merge_message_writes([], [[_message(item) for item in items]])
    except Exception as error:  # LangChain raises what it happens on, AttributeError too
        raise HTTPException(422, f"{name} holds what is no message: {error}") from error


def _message(item: Any) -> Any:
    """A message as the state's own JSON shows it, or any form that LangChain understands."""
    if not isinstance(item, dict):
        return item
    try:
        return _MESSAGE.validate_python(item)
    except (TypeError, ValidationError):
        return item
