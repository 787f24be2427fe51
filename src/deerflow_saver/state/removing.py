"""Emptying a thread that was empty before a run, if all that is there is that run's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, NoReturn

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.guard.fence import Call
from deerflow_saver.state.if_head import IfHead
from deerflow_saver.state.rollback_errors import RollbackError

__all__ = ["Removal", "alisting", "listing", "removing"]


class Removal(NamedTuple):
    """A thread to be emptied."""

    config: RunnableConfig
    """Names the thread."""
    run_id: str | None

    @property
    def thread_id(self) -> str:
        """The thread."""
        return str(configurable(self.config)["thread_id"])


class _Row(NamedTuple):
    """What is asked of a stored checkpoint."""

    checkpoint_ns: str
    checkpoint_id: str
    run_id: Any


def removing(asked: Removal) -> Plan[bool]:
    """Delete the thread, in one step with a look at whether anybody has written meanwhile.

    A row tells whose it is by the `run_id` in its metadata. What tells nothing may be anybody's,
    and is never deleted.
    """
    yield "get_tuple", asked.config  # waits for saves of this process that are under way
    rows = yield "rows", asked.config
    if not rows:
        return True
    for row in rows:
        if asked.run_id is None or row.run_id is None or str(row.run_id) != asked.run_id:
            _refuse(asked, row)
    head_id = max((row.checkpoint_id for row in rows if not row.checkpoint_ns), default=None)
    yield "check", None
    yield "forget", asked.thread_id
    try:
        call: Call = ("delete_thread", (asked.thread_id,), {})
        yield "if_head", IfHead(asked.config, head_id, call)
    finally:
        yield "forget", asked.thread_id
    return True


def _refuse(asked: Removal, row: _Row) -> NoReturn:
    who = "Run" if asked.run_id is None else f"Run {asked.run_id}"
    where = f" of namespace {row.checkpoint_ns!r}" if row.checkpoint_ns else ""
    whose = "tells no run" if row.run_id is None else f"is of run {row.run_id}"
    error = RollbackError(
        f"{who} rollback failed: thread {asked.thread_id!r} was empty before it, and checkpoint "
        f"{row.checkpoint_id}{where} {whose}, so it is not known to be this run's",
        thread_id=asked.thread_id,
        checkpoint_id=None,
    )
    error.add_note(
        "Nothing was deleted. Run with the run's id in the config, as in "
        "{'metadata': {'run_id': ...}}, and pass it as run_id; or, if nobody else can have "
        "written to the thread, call delete_thread."
    )
    raise error


def listing(saver: Any) -> Callable[[RunnableConfig], list[_Row]]:
    """The operation `"rows"` on a saver's sync face: all of a thread's, in every namespace."""
    return lambda config: [_row(found) for found in saver.list(_everywhere(config))]


def alisting(saver: Any) -> Callable[[RunnableConfig], Awaitable[list[_Row]]]:
    """The operation `"rows"` on a saver's async face."""

    async def rows(config: RunnableConfig) -> list[_Row]:
        return [_row(found) async for found in saver.alist(_everywhere(config))]

    return rows


def _everywhere(config: RunnableConfig) -> RunnableConfig:
    names = {k: v for k, v in configurable(config).items() if k != "checkpoint_ns"}
    return {**config, "configurable": names}


def _row(found: Any) -> _Row:
    checkpoint_ns = configurable(found.config).get("checkpoint_ns") or ""
    return _Row(checkpoint_ns, found.checkpoint["id"], (found.metadata or {}).get("run_id"))
