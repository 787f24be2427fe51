"""Postgres: the statements that make a write depend on a forecast, and how they are sent.

Each of them fails unless what it says holds, and takes with it whatever follows in the same
pipeline. They are sent ahead of the saver's own statements, prepared, and without a cursor:
nobody reads their answers, and a cursor sends what it has at every `execute`, so that each
statement would be a message of its own. Where psycopg has not prepared a statement yet, may not
(`prepare_threshold=None`), or would begin a transaction first, a cursor takes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from hashlib import blake2b
from typing import Any

from psycopg import Error
from psycopg.errors import InvalidTextRepresentation, PipelineAborted

from deerflow_saver.guard.fence import Forecast

__all__ = [
    "Ahead",
    "Statement",
    "held_statements",
    "lock_id",
    "sent_ahead",
    "surprised",
    "unmasked",
]

_SURPRISE = "deerflow-saver: not as foreseen, looking again"
_UNLESS = f"SELECT CAST(CASE WHEN %s THEN '1' ELSE '{_SURPRISE}' END AS integer)"
_HEAD = (
    "(SELECT checkpoint_id FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = %s "
    "ORDER BY checkpoint_id DESC LIMIT 1) = %s"
)
_NEWER = " AND %s::text > %s::text"
_NO_ROW = (
    " AND NOT EXISTS (SELECT 1 FROM checkpoint_writes "
    "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"
)
_OF_TASK = " AND task_id = %s"
_BEYOND = (
    " GROUP BY task_id, channel "
    "HAVING count(*) > cardinality(array_positions(%s::text[], task_id || chr(31) || channel))"
)
_OR_OF_TASK = " OR task_id = %s"

Values = tuple[Any, ...]


class Statement:
    """A statement, and the key under which psycopg knows it once it has prepared it."""

    __slots__ = ("query", "text", "types")

    def __init__(self, text: str) -> None:
        """`text` has a `%s` for each value, all of which are strings."""
        self.text = text
        numbers = iter(range(1, text.count("%s") + 1))
        self.query = re.sub("%s", lambda _: f"${next(numbers)}", text).encode()
        self.types = (0,) * text.count("%s")


Ahead = Sequence[tuple[Statement, Values]]


@cache
def _failing(condition: str) -> Statement:
    """Fails unless the condition holds."""
    return Statement(_UNLESS.replace("%s", condition))


_LOCK = Statement("SELECT pg_advisory_xact_lock(%s::bigint)")
_TRY_LOCK = _failing("pg_try_advisory_xact_lock(%s::bigint)")


def lock_id(thread_id: Any, checkpoint_ns: str) -> int:
    """The advisory lock of a namespace."""
    name = f"deerflow-saver\0{thread_id}\0{checkpoint_ns}"
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


@lru_cache(1024)
def _lock_values(thread_id: str, checkpoint_ns: str) -> Values:
    return (str(lock_id(thread_id, checkpoint_ns)),)


def held_statements(forecast: Forecast, *, single: bool) -> Ahead:
    """Take the lock, on a `single` connection without waiting for it, and check the forecast."""
    look = forecast.look
    lock = _lock_values(str(look.thread_id), look.checkpoint_ns)
    return (_TRY_LOCK if single else _LOCK, lock), _condition(forecast)


def _condition(forecast: Forecast) -> tuple[Statement, Values]:
    """What has to hold: the head, what stands behind it, and the writes stored on it."""
    look, rows, head = forecast.look, forecast.rows, forecast.foreseen.head
    if head is None:
        msg = "a forecast without a head"
        raise ValueError(msg)
    on_head = head.parent_place == "head"
    newer = look.child or (None if on_head else look.parent)
    place = look.thread_id, look.checkpoint_ns
    values: Values = (*place, head.checkpoint_id)
    if newer is not None:
        values += (newer, head.checkpoint_id)
    condition = _HEAD if newer is None else _HEAD + _NEWER
    if on_head and look.rows:
        shape, more = _rows(rows, look.task_id)
        if shape:
            condition, values = condition + shape, (*values, *place, look.parent, *more)
    return _failing(condition), values


def _rows(rows: Sequence[tuple[str, str]] | None, task_id: str | None) -> tuple[str, Values]:
    """What has to hold of the writes on the head: none but `rows`, and none of the task."""
    if rows is None:
        return ("", ()) if task_id is None else (_NO_ROW + _OF_TASK + ")", (task_id,))
    if not rows:
        return _NO_ROW + ")", ()
    if task_id is None:
        return _NO_ROW + _BEYOND + ")", (_array(rows),)
    return _NO_ROW + _BEYOND + _OR_OF_TASK + ")", (_array(rows), task_id)


def _array(rows: Sequence[tuple[str, str]]) -> str:
    """An array literal of the rows' names."""
    names = ",".join([_quoted(f"{task}\x1f{channel}") for task, channel in rows])
    return f"{{{names}}}"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def sent_ahead(conn: Any, statements: Ahead) -> bool:
    """Send statements before those that follow in the connection's pipeline.

    The server is at work on them while the saver puts its own together. False if a cursor has
    to take them: psycopg has not prepared them all, or there is something to be encoded or
    begun first.
    """
    try:
        prepared = [(conn._prepared.get(it), values) for it, values in statements]  # noqa: SLF001
        if not conn.autocommit or any(found[0].name != "YES" for found, _ in prepared):
            return False
        pgconn, pipeline = conn.pgconn, conn._pipeline  # noqa: SLF001 - False if not there
        commands, results = pipeline.command_queue, pipeline.result_queue
        calls = [
            partial(pgconn.send_query_prepared, name, [value.encode("ascii") for value in values])
            for (_, name), values in prepared
        ]
    except (AttributeError, TypeError, ValueError):
        return False
    for call in calls:
        commands.append(call)
        results.append(None)  # what psycopg does for a command whose answer nobody reads
    while commands:
        commands.popleft()()
    pgconn.flush()
    return True


def unmasked(error: BaseException) -> BaseException:
    """The error of the statement that failed, not that those behind it were skipped.

    Leaving a pipeline, psycopg raises the second while it handles the first, if the answers
    come one by one.
    """
    if isinstance(error, PipelineAborted) and isinstance(error.__context__, Error):
        return error.__context__
    return error


def surprised(error: BaseException) -> bool:
    """Whether the database says that a forecast did not hold."""
    return isinstance(error, InvalidTextRepresentation) and _SURPRISE in str(error)
