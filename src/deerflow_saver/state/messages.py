"""`add_messages` for delta channels: one linear pass over a batch of writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from langchain_core.messages import (
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from deerflow_saver.state.message_ids import MessageIds

__all__ = ["merge_message_writes"]


def merge_message_writes(state: Any, writes: Sequence[Any]) -> list[BaseMessage]:
    """Fold `add_messages` over `writes`, in time linear in messages and writes.

    A reducer for `DeltaChannel`: deterministic, and the same however the writes are
    batched. It differs from the fold in two ways that a replayed history needs. No object
    it is given changes, and a message without an id gets one that depends only on its
    content and on the ids in use, so that every replay gives it the same one.

    Args:
        state: the messages so far; a list, or one message-like.
        writes: the updates, oldest first; each a list of message-likes, or one.

    Returns:
        A new list. Without writes it is a copy of `state`, nothing coerced.

    Raises:
        ValueError: as `langgraph.graph.message.add_messages` raises it: a write is None, or
            a `RemoveMessage` names an id that is not there.

    """
    if not writes:
        return list(state) if isinstance(state, list) else [state]
    if state is None or writes[0] is None:
        raise _one_sided(state)
    merge = _Merge(_coerced(state))
    for write in writes:
        if write is None:
            raise _one_sided(merge.messages())
        merge.apply(_coerced(write))
    return merge.messages()


class _Merge:
    """The messages so far, each in its place, and the places of every id."""

    __slots__ = ("_ids", "_messages", "_places")

    def __init__(self, state: list[BaseMessage]) -> None:
        self._reset(())
        self._reset(self._ids.given(state))

    def _reset(self, messages: Iterable[BaseMessage]) -> None:
        self._messages: list[BaseMessage | None] = []
        self._places: dict[str, list[int]] = {}
        self._ids = MessageIds(self._places)
        for message in messages:
            self._append(message)

    def _append(self, message: BaseMessage) -> None:
        self._places.setdefault(cast("str", message.id), []).append(len(self._messages))
        self._messages.append(message)

    def messages(self) -> list[BaseMessage]:
        """What is left, in order."""
        return [message for message in self._messages if message is not None]

    def apply(self, write: list[BaseMessage]) -> None:
        """One update, as one call of `add_messages`."""
        write = self._ids.given(write)
        last = _last_remove_all(write)
        if last is not None:
            # What follows is the new state as it stands, removals included.
            self._reset(write[last + 1 :])
            return
        removed: set[str] = set()
        for message in write:
            self._put(message, removed)
        for message_id in removed:
            self._drop(message_id)

    def _put(self, message: BaseMessage, removed: set[str]) -> None:
        message_id = cast("str", message.id)
        places = self._places.get(message_id)
        if isinstance(message, RemoveMessage):
            if places is None:
                raise ValueError(
                    f"Attempting to delete a message with an ID that doesn't exist ('{message_id}')"
                )
            removed.add(message_id)
        elif places is None:
            self._append(message)
        else:
            removed.discard(message_id)
            self._messages[places[-1]] = message

    def _drop(self, message_id: str) -> None:
        for place in self._places.pop(message_id):
            self._messages[place] = None
        self._ids.freed(message_id)


def _last_remove_all(write: list[BaseMessage]) -> int | None:
    for place in range(len(write) - 1, -1, -1):
        message = write[place]
        if isinstance(message, RemoveMessage) and message.id == REMOVE_ALL_MESSAGES:
            return place
    return None


def _coerced(value: Any) -> list[BaseMessage]:
    items = value if isinstance(value, list) else [value]
    # A long history is all plain messages: look at the few types, not at every message.
    if all(
        issubclass(kind, BaseMessage) and not issubclass(kind, BaseMessageChunk)
        for kind in set(map(type, items))
    ):
        return items
    return [
        message_chunk_to_message(cast("BaseMessageChunk", item))
        for item in convert_to_messages(items)
    ]


def _one_sided(received: Any) -> ValueError:
    side = "left" if received else "right"
    return ValueError(
        f"Must specify non-null arguments for both 'left' and 'right'. Only received: '{side}'."
    )
