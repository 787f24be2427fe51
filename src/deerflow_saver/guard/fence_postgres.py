"""Postgres: look and write in one transaction that holds an advisory lock of the namespace.

The transaction runs on the saver's own connection, or on one of its pool, and the write
goes through a twin of the saver bound to that connection. The lock is Postgres's
to release: by commit, by rollback, by the end of a backend whose client died.

The head is read in a statement of its own after the lock was granted: under READ COMMITTED
that statement sees whatever the previous holder committed. It reads `metadata` only, since
anything taken from a large `checkpoint` would fetch all of it. Begin, lock and look travel
in one pipeline, write and commit in another. (`Connection.transaction` would synchronise
between them; the `Transaction` it makes does not.)

Where the guard can foresee what it would see, one pipeline does: lock, a statement that
fails if the forecast does not hold, and the write. A pipeline is one transaction up to its
synchronisation, so the failure takes the write with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from psycopg import AsyncConnection, AsyncTransaction, Connection, Error, Rollback, Transaction
from psycopg.errors import PipelineAborted
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from deerflow_saver._shadows import twin_of
from deerflow_saver._taping import run
from deerflow_saver.guard.fence import (
    Call,
    Fence,
    FenceKind,
    Forecast,
    Look,
    ProcessFence,
    Row,
    Seen,
    Session,
    selected_head,
)
from deerflow_saver.guard.postgres_forecast import (
    Ahead,
    held_statements,
    lock_id,
    sent_ahead,
    surprised,
    unmasked,
)

__all__ = ["AsyncPostgresFence", "PostgresFence", "postgres_fence"]

_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
_HEAD = (
    "SELECT checkpoint_id, parent_checkpoint_id, metadata, "
    "%(parent)s::text > checkpoint_id, %(child)s::text > checkpoint_id FROM checkpoints "
    "WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(ns)s "
    "ORDER BY checkpoint_id DESC LIMIT 1"
)
_HEAD_AND_ROWS = (
    "SELECT h.checkpoint_id, h.parent_checkpoint_id, h.metadata, "
    "%(parent)s::text > h.checkpoint_id, %(child)s::text > h.checkpoint_id, "
    "w.task_id, w.idx, w.channel, CASE WHEN w.task_id = %(task_id)s THEN w.type END, "
    "CASE WHEN w.task_id = %(task_id)s THEN w.blob END FROM "
    "(SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata "
    "FROM checkpoints WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(ns)s "
    "ORDER BY checkpoint_id DESC LIMIT 1) h LEFT JOIN checkpoint_writes w "
    "ON w.thread_id = h.thread_id AND w.checkpoint_ns = h.checkpoint_ns "
    "AND w.checkpoint_id = h.checkpoint_id AND h.checkpoint_id = %(parent)s"
)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_SURPRISE: Any = object()


class _Later:
    """Stands in for the saver's pipeline, so that its write waits for the commit behind it."""

    def sync(self) -> None:
        """Not yet."""


class _ALater:
    async def sync(self) -> None:
        """Not yet."""


_LATER, _A_LATER = _Later(), _ALater()


def postgres_fence(saver: Any) -> Fence:
    """The fence of a Postgres saver.

    On a single connection without autocommit the caller commits, whenever that is: no
    transaction of the guard's own could end, so there the process is all that is fenced.
    """
    conn = saver.conn
    if isinstance(conn, Connection | AsyncConnection) and not conn.autocommit:
        return ProcessFence(saver)
    return AsyncPostgresFence(saver) if hasattr(saver, "loop") else PostgresFence(saver)


def _query(look: Look) -> tuple[str, dict[str, Any]]:
    arguments = {
        "parent": look.parent or "",
        "child": look.child or "",
        "thread_id": look.thread_id,
        "ns": look.checkpoint_ns,
    }
    if not look.rows:
        return _HEAD, arguments
    return _HEAD_AND_ROWS, {**arguments, "task_id": look.task_id or ""}


def _seen(look: Look, found: Any) -> Seen:
    if not found:
        return Seen()
    newest, parent, metadata, *newer = found[0][:5]
    head = selected_head(look, newest, parent, lambda: metadata, newer)
    own = [
        Row(task_id, idx, channel, (kind, blob) if kind is not None else None)
        for *_, task_id, idx, channel, kind, blob in (found if look.rows else ())
        if task_id is not None
    ]
    return Seen(head, own)


def _pause(tries: int) -> float:
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * (1 << min(tries, 10)))
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - spreads waiters, no secret


class PostgresFence(ProcessFence):
    """The fence of `PostgresSaver`, on a connection or a pool."""

    kind: FenceKind = "transaction"

    def __init__(self, saver: Any) -> None:
        """Use `saver` for reading and writing."""
        super().__init__(saver)
        self.foresees = bool(saver.supports_pipeline)

    def look(self, asked: tuple[Session, Look]) -> Seen:
        """Begin, lock and look; on a shared connection let others use it between tries."""
        session, look = asked
        tries = 0
        while True:
            seen = self._begin(session, look)
            if seen is not None:
                return seen
            self.close(session)
            time.sleep(_pause(tries))
            tries += 1

    def _begin(self, session: Session, look: Look) -> Seen | None:
        """One try; None if another connection holds the lock."""
        session.stack = stack = ExitStack()
        conn, single = self._connection(stack)
        with _unmasked(), self._pipeline(conn):
            session.transaction = Transaction(conn)
            session.transaction.__enter__()
            stack.callback(_roll_back, session, conn)
            lock = conn.cursor(row_factory=tuple_row).execute(
                _TRY_LOCK if single else _LOCK, (lock_id(look.thread_id, look.checkpoint_ns),)
            )
            found = conn.cursor(row_factory=tuple_row, binary=True).execute(*_query(look))
        granted = lock.fetchone()
        if single and not (granted and granted[0]):
            return None
        session.saver = self._bound_to(conn)
        return _seen(look, found.fetchall())

    def _connection(self, stack: ExitStack) -> tuple[Any, bool]:
        """The saver's connection, or one of its pool, and whether it is the only one."""
        saver = self.saver
        if isinstance(saver.conn, Connection):
            stack.enter_context(saver.lock)
            return saver.conn, True
        return stack.enter_context(saver.conn.connection()), False

    def _bound_to(self, conn: Any) -> Any:
        """A copy of the saver that writes on `conn`, and leaves the commit to the fence."""
        later = {"pipe": _LATER} if self.foresees else {}
        return twin_of(self.saver, conn=conn, lock=threading.Lock(), **later)

    def _pipeline(self, conn: Any) -> Any:
        return conn.pipeline() if self.foresees else contextlib.nullcontext()

    def store(self, asked: tuple[Session, Call]) -> Any:
        """Write and commit."""
        session, call = asked
        with _unmasked(), self._pipeline(session.saver.conn):
            stored = run(session.saver, call)
            transaction, session.transaction = session.transaction, None
            transaction.__exit__(None, None, None)
        self.close(session)
        return stored

    def attempt(self, asked: tuple[Session, Call, Forecast]) -> Any:
        """Lock, check the forecast and write in one pipeline, which is one transaction."""
        _, call, forecast = asked
        if not self.foresees:
            return super().attempt(asked)
        with ExitStack() as stack:
            conn, single = self._connection(stack)
            tried = self._tried(conn, call, held_statements(forecast, single=single))
        return super().attempt(asked) if tried is _SURPRISE else tried

    def _tried(self, conn: Any, call: Call, ahead: Ahead) -> Any:
        """What the call gives if the statements ahead of it hold, else `_SURPRISE`."""
        try:
            with conn.pipeline():
                by_cursor = () if sent_ahead(conn, ahead) else ahead
                for statement, values in by_cursor:
                    conn.cursor().execute(statement.text, values)
                return run(self._bound_to(conn), call)
        except Error as error:
            cause = unmasked(error)
            if surprised(cause):
                return _SURPRISE
            raise cause from None

    def close(self, session: Session) -> None:
        """Roll back what was not committed, and give the connection back."""
        if session.stack is not None:
            stack, session.stack = session.stack, None
            stack.close()


@contextlib.contextmanager
def _unmasked() -> Iterator[None]:
    """Raise the error of the statement that failed (`unmasked`)."""
    try:
        yield
    except PipelineAborted as aborted:
        cause = unmasked(aborted)
        if cause is aborted:
            raise
        raise cause from None


def _sync(conn: Any) -> None:
    """On a connection that stays in pipeline mode: wait for what was sent."""
    if conn.info.pipeline_status is not PipelineStatus.OFF:
        with conn.pipeline():
            pass


async def _async_sync(conn: Any) -> None:
    if conn.info.pipeline_status is not PipelineStatus.OFF:
        async with conn.pipeline():
            pass


def _roll_back(session: Session, conn: Any) -> None:
    with contextlib.suppress(Error):  # a broken connection has rolled back
        if session.transaction is not None:
            session.transaction.__exit__(Rollback, Rollback(), None)
            _sync(conn)
        if conn.info.transaction_status is TransactionStatus.INERROR:
            conn.rollback()


async def _aroll_back(session: Session, conn: Any) -> None:
    with contextlib.suppress(Error):  # as above
        if session.transaction is not None:
            await session.transaction.__aexit__(Rollback, Rollback(), None)
            await _async_sync(conn)
        if conn.info.transaction_status is TransactionStatus.INERROR:
            await conn.rollback()


class AsyncPostgresFence(ProcessFence):
    """The fence of `AsyncPostgresSaver`, on a connection or a pool."""

    kind: FenceKind = "transaction"

    def __init__(self, saver: Any) -> None:
        """Use `saver` for reading and writing."""
        super().__init__(saver)
        self.foresees = bool(saver.supports_pipeline)

    async def alook(self, asked: tuple[Session, Look]) -> Seen:
        """Begin, lock and look; on a shared connection let others use it between tries."""
        session, look = asked
        tries = 0
        while True:
            seen = await self._begin(session, look)
            if seen is not None:
                return seen
            await self.aclose(session)
            await asyncio.sleep(_pause(tries))
            tries += 1

    async def _begin(self, session: Session, look: Look) -> Seen | None:
        """One try; None if another connection holds the lock."""
        session.stack = stack = AsyncExitStack()
        conn, single = await self._connection(stack)
        with _unmasked():
            async with self._pipeline(conn):
                session.transaction = AsyncTransaction(conn)
                await session.transaction.__aenter__()
                stack.push_async_callback(_aroll_back, session, conn)
                lock = await conn.cursor(row_factory=tuple_row).execute(
                    _TRY_LOCK if single else _LOCK, (lock_id(look.thread_id, look.checkpoint_ns),)
                )
                found = await conn.cursor(row_factory=tuple_row, binary=True).execute(*_query(look))
        granted = await lock.fetchone()
        if single and not (granted and granted[0]):
            return None
        session.saver = self._bound_to(conn)
        return _seen(look, await found.fetchall())

    async def _connection(self, stack: AsyncExitStack) -> tuple[Any, bool]:
        """The saver's connection, or one of its pool, and whether it is the only one."""
        saver = self.saver
        if isinstance(saver.conn, AsyncConnection):
            await stack.enter_async_context(saver.lock)
            return saver.conn, True
        return await stack.enter_async_context(saver.conn.connection()), False

    def _bound_to(self, conn: Any) -> Any:
        """A copy of the saver that writes on `conn`, and leaves the commit to the fence."""
        later = {"pipe": _A_LATER} if self.foresees else {}
        return twin_of(self.saver, conn=conn, lock=asyncio.Lock(), **later)

    def _pipeline(self, conn: Any) -> Any:
        return conn.pipeline() if self.foresees else contextlib.nullcontext()

    async def astore(self, asked: tuple[Session, Call]) -> Any:
        """Write and commit."""
        session, call = asked
        with _unmasked():
            async with self._pipeline(session.saver.conn):
                stored = await run(session.saver, call)
                transaction, session.transaction = session.transaction, None
                await transaction.__aexit__(None, None, None)
        await self.aclose(session)
        return stored

    async def aattempt(self, asked: tuple[Session, Call, Forecast]) -> Any:
        """Lock, check the forecast and write in one pipeline, which is one transaction."""
        _, call, forecast = asked
        if not self.foresees:
            return await super().aattempt(asked)
        async with AsyncExitStack() as stack:
            conn, single = await self._connection(stack)
            tried = await self._tried(conn, call, held_statements(forecast, single=single))
        return await super().aattempt(asked) if tried is _SURPRISE else tried

    async def _tried(self, conn: Any, call: Call, ahead: Ahead) -> Any:
        """What the call gives if the statements ahead of it hold, else `_SURPRISE`."""
        try:
            async with conn.pipeline():
                by_cursor = () if sent_ahead(conn, ahead) else ahead
                for statement, values in by_cursor:
                    await conn.cursor().execute(statement.text, values)
                return await run(self._bound_to(conn), call)
        except Error as error:
            cause = unmasked(error)
            if surprised(cause):
                return _SURPRISE
            raise cause from None

    async def aclose(self, session: Session) -> None:
        """Roll back what was not committed, and give the connection back."""
        if session.stack is not None:
            stack, session.stack = session.stack, None
            await stack.aclose()
