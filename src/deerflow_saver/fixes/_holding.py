"""Storing what a late run writes on a checkpoint that its thread has left.

A delta write stored there would be read by the checkpoint's other children. So each is
filed under another channel's name, where no history finds it, and handed back to the next
run that starts at the checkpoint. What the run's own child needs is in that child's
snapshot.

- A task's delta writes keep their places: savers key a write by its place in the list.
- Of the null task, which holds a `Command`'s update until a checkpoint is made, every
  regular write is held, under a task id of its own: a reader applies what it finds under
  the null task to the checkpoint's state, and delta and plain channels must not differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any
from uuid import UUID, uuid5

from langgraph._internal._constants import NULL_TASK_ID
from langgraph.checkpoint.base import WRITES_IDX_MAP

__all__ = ["HELD", "Holding"]

HELD = "__deerflow_held__"
"""Channel of a held write; its value is `[channel, value]`."""

Write = tuple[str, Any]
Pending = tuple[str, str, Any]


class Holding:
    """A loop's `put_writes` for as long as the loop is on the checkpoint `base`."""

    def __init__(
        self, put: Callable[..., Any], base: str, delta: Collection[str], loaded: Iterable[Pending]
    ) -> None:
        """Take note of the null task's writes that are stored as they are already."""
        self._put = put
        self._base = base
        self._delta = delta
        self._stored = sum(1 for task, ch, _ in loaded if task == NULL_TASK_ID and _regular(ch))

    def put(self, config: Any, writes: Sequence[Write], task_id: str, *path: str) -> Any:
        """The sync saver's call."""
        for part, task in self._parts(config, writes, task_id):
            self._put(config, part, task, *path)

    async def aput(self, config: Any, writes: Sequence[Write], task_id: str, *path: str) -> Any:
        """The async saver's call."""
        parts = self._parts(config, writes, task_id)
        await asyncio.gather(*(self._put(config, part, task, *path) for part, task in parts))

    def _parts(
        self, config: Any, writes: Sequence[Write], task_id: str
    ) -> list[tuple[Sequence[Write], str]]:
        """The calls to make instead of one."""
        if config["configurable"].get("checkpoint_id") != self._base:
            return [(writes, task_id)]
        if task_id != NULL_TASK_ID:
            held = [(HELD, [ch, v]) if ch in self._delta else (ch, v) for ch, v in writes]
            return [(held, task_id)]
        regular = [(ch, v) for ch, v in writes if _regular(ch)]
        kept = regular[: self._stored] + [(ch, v) for ch, v in writes if not _regular(ch)]
        held = [(HELD, [ch, v]) for ch, v in regular[self._stored :]]
        parts: list[tuple[Sequence[Write], str]] = [(kept, NULL_TASK_ID)]
        parts.append((held, _holder(self._base)))
        return [part for part in parts if part[0]]

    @staticmethod
    def handed_back(loaded: Iterable[Pending], base: str) -> list[Pending]:
        """Pending writes as a run is to find them, held ones under their own names."""
        holder = _holder(base)
        return [
            (NULL_TASK_ID if task == holder else task, *value) if ch == HELD else (task, ch, value)
            for task, ch, value in loaded
        ]


def _regular(channel: str) -> bool:
    return channel not in WRITES_IDX_MAP


def _holder(base: str) -> str:
    """The task id of the null task's held writes."""
    return str(uuid5(UUID(base), HELD))
