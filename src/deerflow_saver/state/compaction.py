"""Compaction: a thread's older messages give way to a summary of them.

The summary comes from whatever callable the application has. What it makes of the state is
stored in one checkpoint on top of the head, and only if that is still the head which was
summarised: nothing that somebody says meanwhile is lost.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from deerflow_saver._plan import adrive, drive
from deerflow_saver.channel_mode.marker import with_checkpoint_mode
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.channels import refuse_delta_channels, refuse_unknown_fields
from deerflow_saver.state.compacting import compacting, refuse_async
from deerflow_saver.state.compaction_errors import ContextCompactionDisabled
from deerflow_saver.state.compaction_types import Asked, Summarize, ThreadCompactionResult
from deerflow_saver.state.conditional import conditional
from deerflow_saver.state.locks import Hold, ThreadLock, aholding, holding

__all__ = ["acompact_thread", "compact_thread"]

SUMMARY_CHANNEL = "summary_text"
_OWNER = "compaction"


def compact_thread(
    accessor: Any,
    thread_id: str,
    *,
    summarize: Summarize | None,
    keep: int | None = None,
    channel: str = "messages",
    summary_channel: str | None = None,
    force: bool = True,
    context: Mapping[str, Any] | None = None,
    lock: ThreadLock | Hold | None = None,
) -> ThreadCompactionResult:
    """Replace a thread's older messages with a summary of them.

    Both modes; the root graph's state only. The thread's lock is held from the first read to
    the write. If the head moves meanwhile, the new one is summarised, once.

    Args:
        accessor: a `CheckpointStateAccessor` of the graph that the thread is run with.
        thread_id: the thread.
        summarize: is given a `CompactionRequest`, and answers with the summary, with a
            `Compaction`, or with None if there is nothing to do. None itself is the switch
            that turns compaction off.
        keep: how many of the newest messages stay, about: a tool's answer stays with its call.
            By default 20, or what a summariser with `chooses = True` chooses.
        channel: where the messages are.
        summary_channel: where the summary goes. By default `summary_text` if the graph has
            it, else a message in front of the others.
        force: passed on to `summarize`.
        context: passed on to `summarize`.
        lock: the thread's lock, or the caller's hold of it; by default the process's lock.

    Raises:
        ContextCompactionDisabled: `summarize` is None.
        ContextCompactionFailed: it raised, or answered nonsense.
        ContextCompactionBusy: tasks are left to run at the head.
        ThreadCheckpointNotFoundError: the thread has no checkpoint; a `LookupError`.
        NonHeadWriteError: the head has moved twice while it was summarised.
        CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.
        UnknownStateFieldError: the graph has no such channel.
        ThreadLockError: the lock could not be had or kept.
        InvalidConfigError: `summarize` is async, or another argument is of no use.

    Whatever it raises, the thread is as before.

    """
    asked = _asked(
        accessor, thread_id, summarize, keep, channel, summary_channel, context, force=force
    )
    if _is_async(summarize):
        refuse_async()
    with holding(lock, asked.thread_id, _OWNER) as hold:
        return drive(compacting(asked), _calls(asked.saver, hold, summarize))


async def acompact_thread(
    accessor: Any,
    thread_id: str,
    *,
    summarize: Summarize | None,
    keep: int | None = None,
    channel: str = "messages",
    summary_channel: str | None = None,
    force: bool = True,
    context: Mapping[str, Any] | None = None,
    lock: ThreadLock | Hold | None = None,
) -> ThreadCompactionResult:
    """`compact_thread` on the async face.

    `summarize` may be async; if it is not, it is called in a thread. An object with an async
    method `acall` has that called.
    """
    asked = _asked(
        accessor, thread_id, summarize, keep, channel, summary_channel, context, force=force
    )
    async with aholding(lock, asked.thread_id, _OWNER) as hold:
        return await adrive(compacting(asked), _acalls(asked.saver, hold, summarize))


def _asked(
    accessor: Any,
    thread_id: str,
    summarize: Any,
    keep: int | None,
    channel: str,
    summary_channel: str | None,
    context: Mapping[str, Any] | None,
    *,
    force: bool,
) -> Asked:
    if summarize is None:
        raise ContextCompactionDisabled
    _refuse_useless(accessor, thread_id, summarize, keep)
    graph, full = accessor.graph, accessor.mode == "full"
    if full:
        refuse_delta_channels(graph.channels)
    if summary_channel is None and SUMMARY_CHANNEL in graph.channels:
        summary_channel = SUMMARY_CHANNEL
    refuse_unknown_fields(graph.channels, dict.fromkeys(filter(None, (channel, summary_channel))))
    # With the msgpack types that the graph's own reads and writes allow
    allow = getattr(graph, "_apply_checkpointer_allowlist", lambda saver: saver)
    return Asked(
        graph,
        conditional(allow(accessor.checkpointer), "refuse-all" if full else "refuse"),
        with_checkpoint_mode(
            {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}, accessor.mode
        ),
        full,
        channel,
        summary_channel,
        keep,
        bool(getattr(summarize, "chooses", False)),
        force,
        dict(context or {}),
    )


def _refuse_useless(accessor: Any, thread_id: Any, summarize: Any, keep: Any) -> None:
    """Refuse arguments with which nothing can be done, before anything is read.

    Raises:
        InvalidConfigError: one of them is such.

    """
    msg = ""
    graph = getattr(accessor, "graph", None)
    if not getattr(graph, "channels", None) or not hasattr(graph, "nodes"):
        msg = "compaction needs an accessor of the compiled graph that the thread is run with"
    elif accessor.checkpointer is None or isinstance(accessor.checkpointer, bool):
        msg = "compaction needs an accessor with a saver"
    elif not callable(summarize):
        msg = f"summarize must be callable, or None, got {type(summarize).__name__}"
    elif not isinstance(thread_id, str) or not thread_id:
        msg = f"thread_id must name the thread, got {thread_id!r}"
    elif keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 0):
        msg = f"keep must be a number of messages, or None, got {keep!r}"
    if msg:
        raise InvalidConfigError(msg)


def _is_async(summarize: Any) -> bool:
    return any(
        inspect.iscoroutinefunction(found)
        for found in (summarize, getattr(summarize, "__call__", None))  # noqa: B004 - asks of what kind
    )


def _calls(saver: Any, hold: Hold, summarize: Any) -> Mapping[str, Callable[[Any], Any]]:
    """The plan's operations on the sync face."""
    return {
        "get_tuple": saver.get_tuple,
        "history": lambda asked: saver.get_delta_channel_history(**asked),
        "summarize": summarize,
        "check": lambda _: hold.check(),
        "put": lambda asked: saver.put(*asked),
    }


def _acalls(
    saver: Any, hold: Hold, summarize: Any
) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """The plan's operations on the async face."""

    async def summarized(request: Any) -> Any:
        called = getattr(summarize, "acall", summarize)
        if _is_async(called):
            return await called(request)
        answer = await asyncio.to_thread(called, request)
        return await answer if inspect.isawaitable(answer) else answer

    return {
        "get_tuple": saver.aget_tuple,
        "history": lambda asked: saver.aget_delta_channel_history(**asked),
        "summarize": summarized,
        "check": lambda _: hold.acheck(),
        "put": lambda asked: saver.aput(*asked),
    }
