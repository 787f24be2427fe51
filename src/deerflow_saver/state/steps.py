"""What the operations of the plans that rewrite a thread do, on either face of a saver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from deerflow_saver.state.holds import Hold
from deerflow_saver.state.namespaces import apaging, paging

__all__ = ["RUNTIME", "async_steps", "sync_steps"]

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
