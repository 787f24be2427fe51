"""SQLite: look and write in one `BEGIN IMMEDIATE` transaction of the saver's own connection.

The write goes through a twin of the saver with a lock of its own, because the
saver's lock is held from the look to the commit. A transaction of another connection
would wait for the saver's for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from contextlib import AsyncExitStack
from typing import Any

from deerflow_saver._shadows import twin_of
from deerflow_saver._taping import run
from deerflow_saver.guard.fence import (
    NOTHING,
    Call,
    Fence,
    FenceKind,
    Look,
    ProcessFence,
    Row,
    Seen,
    Session,
    selected_head,
)

__all__ = ["AsyncSqliteFence", "SqliteFence", "sqlite_fence"]

# The index alone answers this: a row's metadata lies behind its checkpoint, page after page
_HEAD = (
    "SELECT checkpoint_id AS id, ? > checkpoint_id AS parent, ? > checkpoint_id AS child "
    "FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? "
    "ORDER BY checkpoint_id DESC LIMIT 1"
)
_HEAD_AND_ROWS = (
    "SELECT id, parent, child, task_id, idx, channel, "  # noqa: S608 - built from constants
    "CASE WHEN task_id = ? THEN type END, CASE WHEN task_id = ? THEN value END "
    f"FROM ({_HEAD}) LEFT JOIN writes "
    "ON thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = id AND id = ?"
)
_REST_OF_HEAD = (
    "SELECT parent_checkpoint_id, metadata FROM checkpoints "
    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)


def sqlite_fence(saver: Any) -> Fence:
    """The fence of a SQLite saver.

    A connection that is always in a transaction (`autocommit=False`) begins none that
    could be waited for; there the process is all that is fenced.
    """
    conn = saver.conn
    if hasattr(saver, "loop"):
        if hasattr(conn, "_execute"):
            return AsyncSqliteFence(saver)
        return ProcessFence(saver)
    return ProcessFence(saver) if getattr(conn, "autocommit", None) is False else SqliteFence(saver)


def _look(conn: sqlite3.Connection, look: Look) -> Seen:
    place = (str(look.thread_id), look.checkpoint_ns)
    cursor = conn.cursor()
    cursor.row_factory = None
    try:
        head = (look.parent or "", look.child or "", *place)
        if look.rows:
            values = (look.task_id, look.task_id, *head, *place, look.parent)
            found = cursor.execute(_HEAD_AND_ROWS, values).fetchall()
        else:
            found = cursor.execute(_HEAD, head).fetchall()
        if not found:
            return NOTHING
        newest, *newer = found[0][:3]
        parent, metadata = None, None
        if look.known is None or look.known.checkpoint_id != newest:
            parent, metadata = cursor.execute(_REST_OF_HEAD, (*place, newest)).fetchone()
        return Seen(
            selected_head(look, newest, parent, lambda: _decoded(metadata), newer),
            [
                Row(task_id, idx, channel, (kind, value) if kind is not None else None)
                for _, _, _, task_id, idx, channel, kind, value in (found if look.rows else ())
                if task_id is not None
            ],
        )
    finally:
        cursor.close()


def _decoded(metadata: Any) -> Any:
    try:
        return json.loads(metadata)
    except (TypeError, ValueError):
        return None


def _begin_and_look(conn: sqlite3.Connection, look: Look) -> tuple[bool, Seen]:
    """Begin, unless somebody's transaction is open that the write would join anyway."""
    begun = not conn.in_transaction
    if begun:
        conn.execute("BEGIN IMMEDIATE")
    return begun, _look(conn, look)


def _commit(conn: sqlite3.Connection) -> None:
    """Commit what the saver left open, as it does on a connection in autocommit mode."""
    if conn.in_transaction:
        conn.execute("COMMIT")


def _roll_back(conn: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):  # the connection was closed, or the disk is gone
        if conn.in_transaction:
            conn.execute("ROLLBACK")


class SqliteFence(ProcessFence):
    """The fence of `SqliteSaver`."""

    kind: FenceKind = "transaction"

    def look(self, asked: tuple[Session, Look]) -> Seen:
        """Take the saver's lock, begin and look."""
        session, look = asked
        saver = self.saver
        saver.lock.acquire()
        session.stack = saver.lock
        saver.setup()
        session.mine = not saver.conn.in_transaction
        seen = _begin_and_look(saver.conn, look)[1]
        session.saver = twin_of(saver, lock=threading.Lock())
        return seen

    def store(self, asked: tuple[Session, Call]) -> Any:
        """Write and commit."""
        session, call = asked
        stored = run(session.saver, call)
        if session.mine:
            _commit(self.saver.conn)
        self.close(session)
        return stored

    def close(self, session: Session) -> None:
        """Roll back what was not committed, and give the saver's lock back."""
        lock, session.stack = session.stack, None
        if lock is None:
            return
        try:
            if session.mine:
                _roll_back(self.saver.conn)
        finally:
            lock.release()


class AsyncSqliteFence(ProcessFence):
    """The fence of `AsyncSqliteSaver`: one trip to its thread for begin and look."""

    kind: FenceKind = "transaction"

    async def alook(self, asked: tuple[Session, Look]) -> Seen:
        """Take the saver's lock, begin and look."""
        session, look = asked
        saver = self.saver
        session.stack = stack = AsyncExitStack()
        await saver.setup()
        await stack.enter_async_context(saver.lock)
        conn = saver.conn
        session.mine = not conn.in_transaction
        if session.mine:
            stack.push_async_callback(self._roll_back)
        _, seen = await conn._execute(_begin_and_look, conn._conn, look)  # noqa: SLF001 - tested for
        session.saver = twin_of(saver, lock=asyncio.Lock())
        return seen  # type: ignore[no-any-return]

    async def astore(self, asked: tuple[Session, Call]) -> Any:
        """Write and commit."""
        session, call = asked
        stored = await run(session.saver, call)
        conn = self.saver.conn
        if session.mine and conn.in_transaction:
            await conn._execute(_commit, conn._conn)  # noqa: SLF001 - as above
        await self.aclose(session)
        return stored

    async def _roll_back(self) -> None:
        conn = self.saver.conn
        with contextlib.suppress(ValueError):  # closed
            if conn.in_transaction:
                await conn._execute(_roll_back, conn._conn)  # noqa: SLF001 - as above

    async def aclose(self, session: Session) -> None:
        """Roll back what was not committed, and give the saver's lock back."""
        if session.stack is not None:
            stack, session.stack = session.stack, None
            await stack.aclose()
