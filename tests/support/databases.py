"""A database to oneself, on a server that is shared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import redis
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import sql

__all__ = ["drop_kept", "empty_redis", "fresh_postgres", "numbered_redis"]

_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_LARGE = 1024 * 1024
"""Bytes of a table from which emptying its file is cheaper than deleting its rows."""

_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_OWN = r"nspname !~ '^pg_' AND nspname <> 'information_schema'"
_SHAPE = f"""
WITH own AS (SELECT oid FROM pg_namespace WHERE {_OWN})
SELECT coalesce(string_agg(it, ' ' ORDER BY it), '') FROM (
    SELECT 'schema ' || oid FROM own
    UNION ALL SELECT concat_ws(',', oid, relname, relchecks, relhasrules, relhastriggers)
        FROM pg_class WHERE relnamespace IN (SELECT oid FROM own)
    UNION ALL SELECT concat_ws(',', attrelid, attname, atttypid, attnotnull, atthasdef)
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace IN (SELECT oid FROM own) AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT 'function ' || oid FROM pg_proc WHERE pronamespace IN (SELECT oid FROM own)
    UNION ALL SELECT 'type ' || oid FROM pg_type WHERE typnamespace IN (SELECT oid FROM own)
    UNION ALL SELECT 'setting ' || array_to_string(setconfig, ',') FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT 'trigger on all' FROM pg_event_trigger
) AS everything(it)
"""
_SCHEMAS = f"SELECT nspname FROM pg_namespace WHERE {_OWN}"


@dataclass
class _Database:
    """One that is kept for the next test, looked after through a connection of its own."""

    server_uri: str
    name: str = field(default_factory=lambda: f"test_{uuid4().hex}")
    shape: str = ""
    """What is in it while the savers' tables are set up and nothing else is; else empty."""

    def __post_init__(self) -> None:
        self._on_server("CREATE DATABASE {} STRATEGY file_copy")
        self.uri = urlsplit(self.server_uri)._replace(path=f"/{self.name}").geturl()
        self._admin = psycopg.connect(self.uri, autocommit=True)

    def set_up(self) -> None:
        """Make the tables that every Postgres saver works with."""
        with PostgresSaver.from_conn_string(self.uri) as saver:
            saver.setup()
        self._alone()
        self.shape = self._shaped()

    def clean(self) -> None:
        """Take everything away that a test left here, and everybody who is still connected."""
        self._alone()
        if self.shape and self._shaped() == self.shape:
            self._delete_rows()
        else:
            self._drop_schemas()
            self.shape = ""

    def drop(self) -> None:
        """Leave nothing of it."""
        self._admin.close()
        self._on_server("DROP DATABASE {} WITH (FORCE)")

    def _alone(self) -> None:
        while self._all(_OTHERS) != [(0,)]:
            time.sleep(0.001)  # a session that ends takes its locks and its last statement along

    def _shaped(self) -> str:
        ((versions,),) = self._all("SELECT to_regclass('checkpoint_migrations')")
        done = versions and self._all("SELECT v FROM checkpoint_migrations ORDER BY v")
        return f"{self._all(_SHAPE)} {done}"

    def _delete_rows(self) -> None:
        for table in _TABLES:
            ((size,),) = self._all(f"SELECT pg_total_relation_size('{table}')")
            self._run(f"TRUNCATE {table}" if size > _LARGE else f"DELETE FROM {table}")

    def _drop_schemas(self) -> None:
        for (name,) in self._all(_SCHEMAS):
            self._run("DROP SCHEMA {} CASCADE", name)
        self._run("CREATE SCHEMA public")
        self._run("GRANT USAGE ON SCHEMA public TO PUBLIC")
        self._run("ALTER DATABASE {} RESET ALL", self.name)

    def _all(self, query: str) -> list[Any]:
        return self._admin.execute(query.encode()).fetchall()

    def _run(self, statement: str, *names: str) -> None:
        composed = sql.SQL(statement)
        self._admin.execute(composed.format(*map(sql.Identifier, names)))

    def _on_server(self, statement: str) -> None:
        # Copying files takes two thirds of the time of the default strategy.
        composed = sql.SQL(statement).format(sql.Identifier(self.name))
        with psycopg.connect(self.server_uri, autocommit=True) as server:
            server.execute(composed)


_kept: dict[str, list[_Database]] = {}
"""By server, those that no test has now. Making one takes a quarter of a second of the server."""


@contextmanager
def fresh_postgres(server_uri: str, *, set_up: bool = False) -> Iterator[str]:
    """The URI of a database that is as good as new; whoever is connected at the end is sent away.

    A database and not a schema: `CREATE INDEX CONCURRENTLY`, which the savers' `setup`
    runs, waits for every open transaction of the same database.

    Args:
        server_uri: a role that may make databases.
        set_up: the savers' tables are there already and `setup` has nothing to do, or may be.

    """
    database = _handed_out(server_uri, _kept.setdefault(server_uri, []), set_up=set_up)
    try:
        yield database.uri
    finally:
        _given_back(database, _kept[server_uri])


def _handed_out(server_uri: str, idle: list[_Database], *, set_up: bool) -> _Database:
    """One of those that are idle, as it was asked for if there is such a one; or a new one."""
    database = next((one for one in reversed(idle) if bool(one.shape) == set_up), None)
    if database is None and set_up and idle:
        database = idle[-1]
    if database is None:
        database = _Database(server_uri)
    else:
        idle.remove(database)
    if set_up and not database.shape:
        database.set_up()
    return database


def _given_back(database: _Database, idle: list[_Database]) -> None:
    """Keep a database for the next test, unless this role may not clean it."""
    try:
        database.clean()
    except psycopg.Error:
        database.drop()
    else:
        idle.append(database)


def drop_kept() -> None:
    """Drop the databases that were kept for further tests."""
    for databases in _kept.values():
        for database in databases:
            database.drop()
    _kept.clear()


def numbered_redis(server_url: str, number: int) -> str:
    """The URL of the server's database `number`, counted from the one the URL names."""
    parts = urlsplit(server_url)
    first = int(parts.path.strip("/") or 0)
    return parts._replace(path=f"/{first + number}").geturl()


def empty_redis(url: str) -> None:
    """Remove every key of one database."""
    with redis.Redis.from_url(url) as client:
        client.flushdb()
