"""A thread lock across processes: an advisory lock of a Postgres transaction.

The transaction is open for as long as the lock is held, on a connection of the lock's own, so it
depends on no pool and no transaction of the saver. It reads and writes nothing meanwhile, so it
holds up no vacuum. If it ends, whoever ended it, Postgres lets go of the lock: nobody waits
for a dead holder. A holder that is alive asks `Hold.check` before it writes.

A lock of the session would do without a transaction, but mean nothing through a pooler that gives
every transaction another session (PgBouncer's transaction mode): two clients may get the same one,
and a session that asks again for a lock it has gets it.
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

_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT set_config(name, value, true) FROM (VALUES
    ('application_name', {name}), ('lock_timeout', {milliseconds}), ('statement_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0')
) AS ours(name, value) JOIN pg_settings USING (name)
"""
"""The settings are this transaction's alone; not every release of Postgres has all of them."""
_LOCK = "SELECT pg_advisory_xact_lock({key})"
"""Without a parameter: a statement that is bound to one keeps its snapshot until the next."""
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

    Through a pooler, each hold and each waiter keeps one of its server connections.

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
        """Open a transaction and take the lock in it."""
        key = _key(hold.thread_id)
        connection = yield "connect", (hold, seconds)
        try:
            left = 0 if seconds is None else max(1, math.ceil((seconds - hold.seconds) * 1000))
            yield "execute", (connection, self._begin(_name(hold), str(left)))
            yield "execute", (connection, _LOCK.format(key=key))
        except self._psycopg.errors.LockNotAvailable:
            yield "execute", (connection, "ROLLBACK")
            found = yield "execute", (connection, _HOLDER, key)
            yield "close", connection
            raise too_late(hold, _described(found)) from None
        except BaseException:
            yield "close", connection
            raise
        hold.session = connection

    def _begin(self, name: str, milliseconds: str) -> Any:
        """Both statements go at once, so that no timeout of the database comes in between."""
        texts = {"name": name, "milliseconds": milliseconds}
        literals = {key: self._psycopg.sql.Literal(text) for key, text in texts.items()}
        return self._psycopg.sql.SQL(_BEGIN).format(**literals)

    def leaving(self, hold: Hold) -> Plan[None]:
        """Let go, and say so if there was nothing left to let go of."""
        connection, hold.session = hold.session, None
        try:
            kept = (yield "execute", (connection, "COMMIT")) == "COMMIT"
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
            yield "execute", (hold.session, _ALIVE)
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
            return self._psycopg.Connection.connect(self._conninfo, **_options(asked[1]))

        def execute(asked: tuple[Any, ...]) -> Any:
            connection, query, *values = asked
            cursor = connection.execute(query, values or None)
            return cursor.fetchone() if cursor.description else cursor.statusmessage

        return {
            **super().calls(),
            "connect": connect,
            "execute": execute,
            "close": lambda connection: connection.close(),
        }

    def acalls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """The operations on an `AsyncConnection`."""

        async def connect(asked: tuple[Hold, float | None]) -> Any:
            options = _options(asked[1])
            return await self._psycopg.AsyncConnection.connect(self._conninfo, **options)

        async def execute(asked: tuple[Any, ...]) -> Any:
            connection, query, *values = asked
            cursor = await connection.execute(query, values or None)
            return await cursor.fetchone() if cursor.description else cursor.statusmessage

        return {
            **super().acalls(),
            "connect": connect,
            "execute": execute,
            "close": lambda connection: connection.close(),
        }


def _psycopg() -> ModuleType:
    try:
        import psycopg
        import psycopg.sql
    except ImportError as error:
        msg = 'PostgresThreadLock needs psycopg: pip install "deerflow-saver[postgres]"'
        raise ImportError(msg) from error
    return psycopg


def _name(hold: Hold) -> str:
    """What waiters find the holder by in `pg_stat_activity`."""
    return f"deerflow-saver lock: {hold.owner}".encode()[:_NAME_BYTES].decode(errors="ignore")


def _options(seconds: float | None) -> dict[str, Any]:
    """The transaction is begun by hand, and nothing is prepared: a pooler's sessions are shared."""
    options: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
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
