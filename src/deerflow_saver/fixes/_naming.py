"""Give messages that are written as strings, pairs or dicts their ids before they are stored.

LangGraph does so for its own message reducer. Any other delta channel may hold something
else, so here its reducer is asked: if it makes a message of the item, with another id each
time or none, and takes a ready-made message in its stead, then that is what is written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.channels.binop import _get_overwrite
from langgraph.types import Overwrite

__all__ = ["named"]

_Shape = Callable[[Any], Any]

_plain: WeakKeyDictionary[Any, set[type]] = WeakKeyDictionary()
"""Types of items of which a reducer makes no messages, so that it is asked only once."""


def named(channel: Any, value: Any) -> Any:
    """The write `value` to the delta channel, its messages with ids; itself if it has none.

    Message objects get their ids in place, as LangGraph does; nothing else is changed.
    """
    is_overwrite, inner = _get_overwrite(value)
    if is_overwrite:
        items = _items(channel, inner, dicts=True)
        return value if items is inner else Overwrite(items)
    if isinstance(value, tuple) and any(isinstance(item, BaseMessage) for item in value):
        for item in value:
            _stamp(item)
        return value
    if isinstance(value, list):
        return _items(channel, value)
    return _item(channel, value, _alone) if _may_be_message(value) else value


def _items(channel: Any, items: Any, *, dicts: bool = False) -> Any:
    if not isinstance(items, (list, tuple)):
        return items
    found = [
        _item(channel, item, _listed) if _may_be_message(item, dicts=dicts) else item
        for item in items
    ]
    if all(new is old for new, old in zip(found, items, strict=True)):
        return items
    return found if isinstance(items, list) else tuple(found)


def _listed(item: Any) -> Any:
    return [item]


def _alone(item: Any) -> Any:
    return item


def _item(channel: Any, item: Any, shape: _Shape) -> Any:
    """A message in place of `item`, if the channel's reducer would make one with a new id."""
    if _known_as_plain(channel.reducer, item):
        return item
    try:
        message: Any = convert_to_messages([item])[0]
        message.id = str(uuid4())
        return message if _makes(channel, item, message, shape) else item
    except Exception:  # noqa: BLE001 - whatever cannot become a message fails where it always has
        return item


def _may_be_message(item: Any, *, dicts: bool = False) -> bool:
    """Whether to ask the reducer; LangGraph sees to dicts outside an `Overwrite`."""
    if isinstance(item, dict):
        kinds = (item.get("role"), item.get("type"))
        return (
            dicts and any(isinstance(kind, str) and kind for kind in kinds) and not item.get("id")
        )
    if isinstance(item, (tuple, list)):
        return len(item) == 2 and all(isinstance(part, str) for part in item)  # noqa: PLR2004
    return isinstance(item, str)


def _makes(channel: Any, item: Any, message: Any, shape: _Shape) -> bool:
    """Whether the reducer makes `message` of `item`, but for the id, which it cannot repeat."""
    made = [_made(channel, item, shape) for _ in range(2)]
    once, again = ([value for value in values if isinstance(value, BaseMessage)] for values in made)
    if made[0] and not once:  # what it drops, such as a blank, says nothing of the next item
        _plain.setdefault(channel.reducer, set()).add(type(item))
    if [m.id for m in once] == [m.id for m in again] != [None] * len(once):
        return False
    ready = _made(channel, message, shape)
    return [_bare(m) for m in once] == [_bare(m) for m in ready] == [_bare(message)] and (
        ready[0].id == message.id
    )


def _made(channel: Any, item: Any, shape: _Shape) -> list[Any]:
    """What the reducer makes of one item in an empty channel."""
    made = channel.reducer(channel.typ(), [shape(copy.deepcopy(item))])
    return list(made.values() if isinstance(made, dict) else made)


def _bare(message: Any) -> Any:
    return message.model_copy(update={"id": None})


def _known_as_plain(reducer: Any, item: Any) -> bool:
    try:
        return type(item) in _plain.get(reducer, ())
    except TypeError:  # neither hashable nor weakly referable
        return False


def _stamp(item: Any) -> None:
    if isinstance(item, BaseMessage) and item.id is None:
        item.id = str(uuid4())
