"""A thread lock across processes: an advisory lock of a Postgres session.

The session is a connection of the lock's own, one per hold, so it depends on no pool and no
transaction of the saver. If it ends, whoever ended it, Postgres lets go of the lock: nobody
waits for a dead holder. A holder that is alive asks `Hold.check` before it writes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from deerflow_saver._plan import Plan
from deerflow_saver.state.lock_errors import ThreadLockLostError
from deerflow_saver.state.locks import DEFAULT_TIMEOUT, Hold, ProcessThreadLock, too_late

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["PostgresThreadLock"]

logger = logging.getLogger("deerflow_saver")

_LOCK = "SELECT pg_advisory_lock(%s)"
_UNLOCK = "SELECT pg_advisory_unlock(%s)"
_PATIENCE = "SELECT set_config('lock_timeout', %s, false)"
_ALIVE = "SELECT 1"
_HOLDER = (
    "SELECT a.application_name, a.pid, a.client_addr::text FROM pg_locks l "
    "JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = %s"
)
_NAME_BYTES = 63
"""Postgres cuts an application name after these."""


class PostgresThreadLock(ProcessThreadLock):
    """Excludes everybody who uses such a lock on the same database, in any process.

    It needs a connection to Postgres itself: through a pooler that shares sessions between
    clients (PgBouncer's transaction mode) an advisory lock means nothing.

    Args:
        conninfo: a libpq connection string or URL.
        timeout: seconds to wait for a lock, unless a call says otherwise; None: no end.

    Raises:
        ImportError: psycopg is not installed.

    """

    def __init__(self, conninfo: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        super().__init__(timeout=timeout)
        self._psycopg = _psycopg()
        self._conninfo = conninfo

    @property
    def identity(self) -> Hashable:
        """Locks on one database exclude each other."""
        return "postgres", self._conninfo

    def reaching(self, hold: Hold, seconds: float | None) -> Plan[None]:
        """Open a session and take the lock in it."""
        key = _key(hold.thread_id)
        connection = yield "connect", (hold, seconds)
        try:
            left = 0 if seconds is None else max(1, math.ceil((seconds - hold.seconds) * 1000))
            yield "execute", (connection, _PATIENCE, str(left))
            yield "execute", (connection, _LOCK, key)
        except self._psycopg.errors.LockNotAvailable:
            found = yield "execute", (connection, _HOLDER, key)
            yield "close", connection
            raise too_late(hold, _described(found)) from None
        except BaseException:
            yield "close", connection
            raise
        hold.session = connection

    def leaving(self, hold: Hold) -> Plan[None]:
        """Let go, and say so if there was nothing left to let go of."""
        connection, hold.session = hold.session, None
        try:
            found = yield "execute", (connection, _UNLOCK, _key(hold.thread_id))
            kept = bool(found[0])
        except self._psycopg.Error:
            kept = False
        finally:
            yield "close", connection
        if not kept:
            logger.warning(
                "thread %r: the session that held its lock (%s) ended before the block did",
                hold.thread_id,
                hold.owner,
            )

    def abandoning(self, hold: Hold) -> None:
        """End the session, and with it the lock."""
        connection, hold.session = hold.session, None
        connection.pgconn.finish()  # what `close` comes down to, which would have to be awaited

    def checking(self, hold: Hold) -> Plan[None]:
        """The lock is held as long as its session answers."""
        try:
            yield "execute", (hold.session, _ALIVE, None)
        except self._psycopg.Error as error:
            msg = (
                f"thread {hold.thread_id!r}: the database session that held the lock has ended, "
                "and somebody else may hold it by now. Nothing was written; take the lock again"
            )
            raise ThreadLockLostError(msg, thread_id=hold.thread_id, owner=hold.owner) from error

    # -- the faces ---------------------------------------------------------------------------

    def calls(self) -> Mapping[str, Callable[[Any], Any]]:
        """The operations on a `Connection`."""

        def connect(asked: tuple[Hold, float | None]) -> Any:
            return self._psycopg.Connection.connect(self._conninfo, **_options(*asked))

        def execute(asked: tuple[Any, str, Any]) -> Any:
            connection, query, value = asked
            return connection.execute(query, None if value is None else (value,)).fetchone()

        return {
            **super().calls(),
            "connect": connect,
            "execute": execute,
            "close": lambda connection: connection.close(),
        }

    def acalls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """The operations on an `AsyncConnection`."""

        async def connect(asked: tuple[Hold, float | None]) -> Any:
            return await self._psycopg.AsyncConnection.connect(self._conninfo, **_options(*asked))

        async def execute(asked: tuple[Any, str, Any]) -> Any:
            connection, query, value = asked
            cursor = await connection.execute(query, None if value is None else (value,))
            return await cursor.fetchone()

        return {
            **super().acalls(),
            "connect": connect,
            "execute": execute,
            "close": lambda connection: connection.close(),
        }


def _psycopg() -> ModuleType:
    try:
        import psycopg
    except ImportError as error:
        msg = 'PostgresThreadLock needs psycopg: pip install "deerflow-saver[postgres]"'
        raise ImportError(msg) from error
    return psycopg


def _options(hold: Hold, seconds: float | None) -> dict[str, Any]:
    """A session that waiters find by its name in `pg_stat_activity`."""
    name = f"deerflow-saver lock: {hold.owner}".encode()[:_NAME_BYTES].decode(errors="ignore")
    options: dict[str, Any] = {"autocommit": True, "application_name": name}
    if seconds is not None:
        options["connect_timeout"] = max(2, math.ceil(seconds))
    return options


def _key(thread_id: str) -> int:
    """The lock's number: apart from the fence's, which writes take while this is held."""
    name = f"deerflow-saver thread lock\0{thread_id}"
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _described(found: Any) -> str | None:
    if found is None:
        return None
    name, pid, address = found
    return f"{name} (backend {pid}{f' of {address}' if address else ''})"
