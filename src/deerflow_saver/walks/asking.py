"""One read-only statement of our own, asked the way the saver asks: its lock, its connection.

Statements are written with `:name` placeholders and translated for the driver.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Statement", "aask", "ask", "family_of", "on_own_loop", "sorts_by_path"]

_FAMILIES = {
    "langgraph.checkpoint.memory": "memory",
    "langgraph.checkpoint.sqlite": "sqlite",
    "langgraph.checkpoint.postgres": "postgres",
}
_SORTING = {
    "memory": "langgraph.checkpoint.memory",
    "sqlite": "langgraph.checkpoint.sqlite._delta",
    "postgres": "langgraph.checkpoint.postgres.base",
}
_BASE = "langgraph.checkpoint.base"
_PLACEHOLDER = re.compile(r"(?<![:\w]):(\w+)")


class Statement(NamedTuple):
    """SQL with `:name` placeholders, and their values."""

    sql: str
    values: Mapping[str, Any]


def family_of(saver: Any, *methods: str) -> str | None:
    """`"memory"`, `"sqlite"` or `"postgres"` if LangGraph's own classes define all `methods`."""
    found = set()
    for name in methods:
        method = getattr(type(saver), name, None)
        if method is None or name in getattr(saver, "__dict__", {}):
            return None
        home = ".".join(str(method.__module__).split(".")[:3])
        if home != _BASE:  # what a saver inherits, such as the missing face's errors
            found.add(_FAMILIES.get(home))
    return found.pop() if len(found) == 1 else None


def sorts_by_path(family: str) -> bool:
    """Whether the installed savers sort by `writes_sort_key`, which they import then."""
    return hasattr(sys.modules.get(_SORTING[family]), "writes_sort_key")


def on_own_loop(saver: Any) -> bool:
    """Whether this is the loop that `saver` lives on, where it refuses synchronous calls."""
    loop = getattr(saver, "loop", None)
    if loop is None:
        return False
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def ask(saver: Any, statement: Statement) -> Sequence[tuple[Any, ...]]:
    """All rows, on the sync face."""
    loop = getattr(saver, "loop", None)
    if loop is not None:
        return asyncio.run_coroutine_threadsafe(aask(saver, statement), loop).result()
    if family_of(saver, "get_tuple") == "sqlite":
        with saver.cursor(transaction=False) as cursor:
            return list(cursor.execute(*statement).fetchall())
    with saver._cursor() as cursor:  # noqa: SLF001 - takes the saver's lock and pipeline as it does
        cursor.execute(*_for_psycopg(statement))
        return [tuple(row.values()) for row in cursor.fetchall()]


async def aask(saver: Any, statement: Statement) -> Sequence[tuple[Any, ...]]:
    """All rows, on the async face."""
    if family_of(saver, "get_tuple") == "sqlite":
        await saver.setup()
        async with saver.lock, saver.conn.execute(*statement) as cursor:
            return list(await cursor.fetchall())
    async with saver._cursor() as cursor:  # noqa: SLF001 - as above
        await cursor.execute(*_for_psycopg(statement))
        return [tuple(row.values()) for row in await cursor.fetchall()]


def _for_psycopg(statement: Statement) -> Statement:
    sql = statement.sql.replace("%", "%%")
    return Statement(_PLACEHOLDER.sub(r"%(\1)s", sql), statement.values)
