"""What the operations of the plans that rewrite a thread do, on either face of a saver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from deerflow_saver.state.holds import Hold
from deerflow_saver.state.if_head import a_if_head, if_head
from deerflow_saver.state.namespaces import apaging, paging
from deerflow_saver.state.removing import alisting, listing

__all__ = ["RUNTIME", "async_rollback", "async_steps", "sync_rollback", "sync_steps"]

RUNTIME = "__pregel_runtime"
"""LangGraph's key of a run, by which a guard knows that reads and writes belong together."""


def sync_steps(saver: Any, hold: Hold) -> Mapping[str, Callable[[Any], Any]]:
    """On the sync face."""
    return {
        "get_tuple": saver.get_tuple,
        "history": lambda asked: saver.get_delta_channel_history(**asked),
        "page": paging(saver),
        "check": lambda _: hold.check(),
        "put_writes": lambda asked: saver.put_writes(*asked),
        "put": lambda asked: saver.put(*asked),
    }


def async_steps(saver: Any, hold: Hold) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """On the async face."""
    return {
        "get_tuple": saver.aget_tuple,
        "history": lambda asked: saver.aget_delta_channel_history(**asked),
        "page": apaging(saver),
        "check": lambda _: hold.acheck(),
        "put_writes": lambda asked: saver.aput_writes(*asked),
        "put": lambda asked: saver.aput(*asked),
    }


def sync_rollback(checkpointer: Any, saver: Any, hold: Hold) -> Mapping[str, Callable[[Any], Any]]:
    """What a rollback does besides, on the sync face.

    Args:
        checkpointer: the caller's saver.
        saver: the same, conditional on what is read through it.
        hold: of the thread's lock.

    """
    raw = _raw(checkpointer)
    return {
        **sync_steps(saver, hold),
        "if_head": if_head(raw),
        "rows": listing(raw),
        "forget": lambda thread_id: _forget(checkpointer, thread_id),
    }


def async_rollback(
    checkpointer: Any, saver: Any, hold: Hold
) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """`sync_rollback` on the async face."""
    raw = _raw(checkpointer)

    async def forget(thread_id: str) -> None:
        _forget(checkpointer, thread_id)

    return {
        **async_steps(saver, hold),
        "if_head": a_if_head(raw),
        "rows": alisting(raw),
        "forget": forget,
    }


def _raw(saver: Any) -> Any:
    """The saver without this package's wrapper, whose rule does not speak of these calls."""
    return saver.inner if hasattr(saver, "cache_info") else saver


def _forget(saver: Any, thread_id: str) -> None:
    """Make a wrapper forget a thread whose rows went without it."""
    if hasattr(saver, "cache_info"):
        saver.purge_thread(thread_id)
        if saver.guard is not None:
            saver.guard.state.forget_thread(thread_id)
