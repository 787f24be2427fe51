"""Every raw saver the suite runs on, each able to come back to its storage after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg import AsyncConnection, Connection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from support.databases import fresh_postgres

Saver = BaseCheckpointSaver[Any]
SyncOpener = Callable[["Storage"], AbstractContextManager[Saver]]
AsyncOpener = Callable[["Storage"], AbstractAsyncContextManager[Saver]]

CONNECTION = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
"""What the Postgres savers' own `from_conn_string` passes; a pool has to be told."""


class Storage:
    """Where one test's data lives: opening a case twice on it is a restart.

    `postgres` is only called, and a database only made, for a case that needs one.
    """

    def __init__(self, folder: Path, postgres: Callable[[], str]) -> None:
        self._folder = folder
        self._postgres = postgres
        self._stack = ExitStack()

    @cached_property
    def sqlite_path(self) -> str:
        """A database file."""
        return str(self._folder / "checkpoints.sqlite")

    @cached_property
    def postgres_uri(self) -> str:
        """A database of this storage's own, in which `setup` has nothing left to do."""
        return self._stack.enter_context(fresh_postgres(self._postgres(), set_up=True))

    @cached_property
    def memory(self) -> InMemorySaver:
        """The owner of the dictionaries that every memory saver of this storage uses."""
        return InMemorySaver()

    def close(self) -> None:
        """Drop what was made."""
        self._stack.close()


@dataclass(frozen=True, slots=True)
class SaverCase:
    """One way to run a saver; `kind` says which of its two faces work."""

    name: str
    kind: Literal["sync", "async", "both"]
    opener: SyncOpener | AsyncOpener

    def __str__(self) -> str:
        """As the test's id shows it."""
        return self.name

    def open(self, storage: Storage) -> AbstractContextManager[Saver]:
        """A saver for synchronous use, set up, on `storage`."""
        manager = self.opener(storage)
        if not isinstance(manager, AbstractContextManager):
            message = f"{self.name} has no synchronous face"
            raise TypeError(message)
        return manager

    @asynccontextmanager
    async def aopen(self, storage: Storage) -> AsyncIterator[Saver]:
        """A saver of any kind, set up, on `storage`."""
        manager = self.opener(storage)
        if isinstance(manager, AbstractContextManager):
            with manager as saver:
                yield saver
        else:
            async with manager as saver:
                yield saver


@contextmanager
def _memory(storage: Storage) -> Iterator[Saver]:
    saver = InMemorySaver()
    for part in ("storage", "writes", "blobs"):
        setattr(saver, part, getattr(storage.memory, part))
    yield saver


@contextmanager
def _sqlite(storage: Storage) -> Iterator[Saver]:
    with SqliteSaver.from_conn_string(storage.sqlite_path) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _async_sqlite(storage: Storage) -> AsyncIterator[Saver]:
    async with AsyncSqliteSaver.from_conn_string(storage.sqlite_path) as saver:
        await saver.setup()
        yield saver


@contextmanager
def _postgres(storage: Storage) -> Iterator[Saver]:
    with PostgresSaver.from_conn_string(storage.postgres_uri) as saver:
        saver.setup()
        yield saver


@contextmanager
def _postgres_pool(storage: Storage) -> Iterator[Saver]:
    pool: ConnectionPool[Connection[DictRow]] = ConnectionPool(
        storage.postgres_uri, kwargs=CONNECTION, min_size=1, max_size=4, open=False
    )
    with pool:
        saver = PostgresSaver(pool)
        saver.setup()
        yield saver


@asynccontextmanager
async def _async_postgres(storage: Storage) -> AsyncIterator[Saver]:
    async with AsyncPostgresSaver.from_conn_string(storage.postgres_uri) as saver:
        await saver.setup()
        yield saver


@asynccontextmanager
async def _async_postgres_pool(storage: Storage) -> AsyncIterator[Saver]:
    pool: AsyncConnectionPool[AsyncConnection[DictRow]] = AsyncConnectionPool(
        storage.postgres_uri, kwargs=CONNECTION, min_size=1, max_size=4, open=False
    )
    async with pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


CASES = (
    SaverCase("memory", "both", _memory),
    SaverCase("sqlite", "sync", _sqlite),
    SaverCase("async-sqlite", "async", _async_sqlite),
    SaverCase("postgres", "sync", _postgres),
    SaverCase("postgres-pool", "sync", _postgres_pool),
    SaverCase("async-postgres", "async", _async_postgres),
    SaverCase("async-postgres-pool", "async", _async_postgres_pool),
)
SYNC_CASES = tuple(case for case in CASES if case.kind != "async")
ASYNC_CASES = tuple(case for case in CASES if case.kind != "sync")

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_sync_case = pytest.mark.parametrize("case", SYNC_CASES, ids=str)
every_async_case = pytest.mark.parametrize("case", ASYNC_CASES, ids=str)
