"""What a cell read, as one digest that the other sides of its case must have too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from langgraph.types import StateSnapshot

from deerflow_saver.cli.comparing import digest, settled

__all__ = ["Digest", "Mismatch", "canonical_messages_digest"]


class Mismatch(Exception):  # noqa: N818 - what is said of the answers
    """A side's answer is not the raw saver's; the message says where they part."""


class Digest:
    """Of the states it is told: values with all their fields, what is next, and what is waiting.

    Ids of checkpoints and tasks, and times, are drawn anew by every run and left out. So is the
    order of parallel tools' answers, which some savers take from the ids of tasks.
    """

    def __init__(self) -> None:
        self._said = hashlib.sha256()
        self.states = 0

    def add(self, snapshot: StateSnapshot) -> None:
        """Take note of a state."""
        tasks = [(task.name, task.error, task.result) for task in snapshot.tasks]
        about = {"values": settled(snapshot.values), "next": snapshot.next, "tasks": tasks}
        self._said.update(digest(about).encode())
        self.states += 1

    def hexdigest(self) -> str:
        """The digest so far."""
        return self._said.hexdigest()


def canonical_messages_digest(messages: Iterable[Any]) -> str:
    """SHA-256 of the compact JSON list of messages.

    Each message is its id, type and content, its tool calls and its `additional_kwargs`.
    """
    said = [
        {
            "id": message.id,
            "type": message.type,
            "content": message.content,
            "tool_calls": getattr(message, "tool_calls", []),
            "additional_kwargs": message.additional_kwargs,
        }
        for message in messages
    ]
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
