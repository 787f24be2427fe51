"""Checkpoints put by hand on one thread, with nothing but what makes it a delta thread."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

__all__ = ["DELTA", "aput", "checkpoint", "config", "put"]

DELTA: Any = {"counters_since_delta_snapshot": {"log": (0, 1)}}


def config(parent: str | None = None) -> Any:
    """The thread, at `parent`."""
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}}


def checkpoint() -> Any:
    """An empty checkpoint with an id of its own."""
    return {**empty_checkpoint(), "id": str(uuid6())}


def put(saver: Any, parent: str | None = None) -> str:
    """Put one; its id."""
    made = checkpoint()
    saver.put(config(parent), made, DELTA, {})
    return str(made["id"])


async def aput(saver: Any, parent: str | None = None) -> str:
    """`put` on the async face."""
    made = checkpoint()
    await saver.aput(config(parent), made, DELTA, {})
    return str(made["id"])
