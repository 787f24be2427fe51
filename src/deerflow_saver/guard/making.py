"""The guard that fits a saver."""

from __future__ import annotations

from typing import Any

from deerflow_saver.guard.fence import Fence, MemoryFence, ProcessFence
from deerflow_saver.guard.guard import Guard, Report
from deerflow_saver.guard.policy import Policy
from deerflow_saver.guard.state import GuardState

__all__ = ["fence_of", "guard_of"]


def guard_of(
    saver: Any, state: GuardState, report: Report, policy: Policy, *, storage: bool, strict: bool
) -> Guard:
    """A guard of `saver`; `storage` says that it is one of LangGraph's own."""
    fence = fence_of(saver, storage=storage)
    return Guard(saver, fence, state, report, policy, strict=strict, scoped=not storage)


def fence_of(saver: Any, *, storage: bool) -> Fence:
    """The strongest fence there is for `saver`."""
    home = type(saver).put.__module__ if storage else ""
    if home.startswith("langgraph.checkpoint.memory"):
        return MemoryFence(saver)
    if home.startswith("langgraph.checkpoint.sqlite"):
        from deerflow_saver.guard.fence_sqlite import sqlite_fence

        return sqlite_fence(saver)
    if home.startswith("langgraph.checkpoint.postgres"):
        from deerflow_saver.guard.fence_postgres import postgres_fence

        return postgres_fence(saver)
    return ProcessFence(saver)
