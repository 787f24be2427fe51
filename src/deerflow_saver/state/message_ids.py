"""Ids for messages that come without one: the same at every replay."""

from __future__ import annotations

import json
from collections.abc import Container
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

from langchain_core.messages import BaseMessage

__all__ = ["MessageIds"]

_PREFIX = "auto-"


class MessageIds:
    """Gives ids of the form `auto-<digest of the content>-<ordinal>`.

    The ordinal is the smallest that is not in use, so equal messages stay apart, and the
    id depends on nothing but the messages that are there: not on how writes are batched.
    """

    __slots__ = ("_freed", "_next", "_used")

    def __init__(self, used: Container[str]) -> None:
        """`used` is looked at, never changed: the ids of the messages so far."""
        self._used = used
        # Per digest: every ordinal below `_next` is in use, or is in `_freed`.
        self._next: dict[str, int] = {}
        self._freed: dict[str, list[int]] = {}

    def given(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """The messages, those without an id replaced by copies with one."""
        if all(message.id is not None for message in messages):
            return messages
        # An id that is written out later in the same list belongs to that message.
        taken = {message.id for message in messages if message.id is not None}
        return [
            message if message.id is not None else self._copy_with_id(message, taken)
            for message in messages
        ]

    def freed(self, message_id: str) -> None:
        """Take note that the id is no longer in use."""
        stem, _, ordinal = message_id.rpartition("-")
        known = self._next.get(stem, 0)
        if ordinal.isdecimal() and len(ordinal) <= len(str(known)) and int(ordinal) < known:
            heappush(self._freed.setdefault(stem, []), int(ordinal))

    def _copy_with_id(self, message: BaseMessage, taken: set[str]) -> BaseMessage:
        stem = f"{_PREFIX}{_digest(message)}"
        message_id = f"{stem}-{self._ordinal(stem, taken)}"
        taken.add(message_id)
        return message.model_copy(update={"id": message_id})

    def _ordinal(self, stem: str, taken: set[str]) -> int:
        freed = self._freed.get(stem, [])
        while freed:
            ordinal = heappop(freed)
            if self._is_free(stem, ordinal, taken):
                return ordinal
        ordinal = self._next.get(stem, 0)
        while not self._is_free(stem, ordinal, taken):
            ordinal += 1
        self._next[stem] = ordinal + 1
        return ordinal

    def _is_free(self, stem: str, ordinal: int, taken: set[str]) -> bool:
        message_id = f"{stem}-{ordinal}"
        return message_id not in self._used and message_id not in taken


def _digest(message: BaseMessage) -> str:
    # Empty fields are left out: a release that adds one must not change the ids of old writes.
    fields = message.model_dump(exclude={"id"}, warnings=False)
    content = {name: value for name, value in fields.items() if value or name == "content"}
    text = json.dumps(content, default=_stable, skipkeys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _stable(value: Any) -> str:
    """Stands for a value JSON has no form for; never an address, which differs per process."""
    return value.hex() if isinstance(value, bytes) else type(value).__qualname__
