"""Which namespaces of a thread have gone on since a checkpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver._probe import traits_of

__all__ = ["apaging", "namespaces_since", "paging"]

_PAGE = 32
"""Rows per query: most threads are taken back by a turn or two."""

Places = list[tuple[str, str]]
"""`(checkpoint_ns, checkpoint_id)`, newest first."""


def namespaces_since(config: RunnableConfig, checkpoint_id: str) -> Plan[set[str]]:
    """Namespaces of the config's thread with checkpoints newer than the given one."""
    names = {k: v for k, v in configurable(config).items() if k != "checkpoint_ns"}
    thread = {**config, "configurable": names}
    found: set[str] = set()
    before: str | None = None
    while True:
        places: Places = yield "page", (thread, before)
        found |= {checkpoint_ns for checkpoint_ns, place in places if place > checkpoint_id}
        if len(places) < _PAGE or places[-1][1] <= checkpoint_id:
            return found
        before = places[-1][1]


def paging(saver: Any) -> Callable[[Any], Places]:
    """The operation `"page"` on a saver's sync face."""

    def page(asked: tuple[Any, str | None]) -> Places:
        if isinstance(saver, InMemorySaver):
            return _heads(saver, *asked)
        return _places(saver.list(asked[0], **_selection(saver, asked[1])))

    return page


def apaging(saver: Any) -> Callable[[Any], Awaitable[Places]]:
    """The operation `"page"` on a saver's async face."""

    async def page(asked: tuple[Any, str | None]) -> Places:
        if isinstance(saver, InMemorySaver):
            return _heads(saver, *asked)
        rows = saver.alist(asked[0], **_selection(saver, asked[1]))
        return _places([row async for row in rows])

    return page


def _selection(saver: Any, before: str | None) -> dict[str, Any]:
    """A page where rows come newest first through all namespaces, as LangGraph's SQL does."""
    inner = getattr(saver, "__wrapped__", saver)
    if traits_of(inner).kind != "storage":
        return {}
    before_config = before and {"configurable": {"checkpoint_id": before}}
    return {"limit": _PAGE, "before": before_config or None}


def _places(rows: Any) -> Places:
    found = [
        (configurable(row.config).get("checkpoint_ns") or "", row.checkpoint["id"]) for row in rows
    ]
    return sorted(found, key=lambda place: place[1], reverse=True)


def _heads(saver: Any, thread: Any, _before: str | None) -> Places:
    """The newest checkpoint of each namespace, from the dictionaries: no row is decoded."""
    by_namespace = dict(saver.storage.get(configurable(thread)["thread_id"], {}))
    found = [(checkpoint_ns, max(rows)) for checkpoint_ns, rows in by_namespace.items() if rows]
    return [*sorted(found, key=lambda place: place[1], reverse=True), ("", "")]
