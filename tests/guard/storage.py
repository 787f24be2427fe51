"""Where a scenario's checkpoints lie: opened for it, and looked at behind its back.

Looking uses a connection and a saver of its own, so it sees what is stored and nothing else.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

import aiosqlite
import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row

from guard.latency import Latency, late
from support.savers import CONNECTION

__all__ = ["Backend", "Dump", "Memory", "Place", "Postgres", "Sqlite"]

Backend = Literal["memory", "sqlite", "postgres"]
Saver = BaseCheckpointSaver[Any]
Dump = dict[str, frozenset[tuple[Any, ...]]]
"""Every stored row, by table. Checkpoints begin with thread, namespace, id and parent; writes
with thread, namespace, checkpoint id, task id, idx and channel."""

_PLACE = "thread_id, checkpoint_ns, checkpoint_id"
_SQLITE = {
    "checkpoints": f"{_PLACE}, parent_checkpoint_id, type, checkpoint, metadata",
    "writes": f"{_PLACE}, task_id, idx, channel, type, value",
}
_POSTGRES = {
    "checkpoints": (
        "checkpoints",
        f"{_PLACE}, parent_checkpoint_id, checkpoint::text, metadata::text",
    ),
    "writes": (
        "checkpoint_writes",
        f"{_PLACE}, task_id, idx, channel, type, blob, task_path",
    ),
    "blobs": (
        "checkpoint_blobs",
        "thread_id, checkpoint_ns, channel, version, type, blob",
    ),
}


class Place(ABC):
    """An empty database."""

    @abstractmethod
    def opened(self, face: str, latency: Latency) -> Any:
        """An async context manager of a saver on it."""

    @abstractmethod
    def looking(self) -> AbstractContextManager[Saver]:
        """A saver of its own on it, for synchronous use."""

    @abstractmethod
    def dump(self) -> Dump:
        """All rows."""


class Memory(Place):
    """The dictionaries of an `InMemorySaver`."""

    def __init__(self) -> None:
        self._owner = InMemorySaver()

    @asynccontextmanager
    async def opened(self, face: str, latency: Latency) -> AsyncIterator[Saver]:
        """A saver on the dictionaries."""
        yield self._on_it(late(InMemorySaver, latency)())

    @contextmanager
    def looking(self) -> Iterator[Saver]:
        """Another saver on the dictionaries."""
        yield self._on_it(InMemorySaver())

    def _on_it(self, saver: InMemorySaver) -> InMemorySaver:
        for part in ("storage", "writes", "blobs"):
            setattr(saver, part, getattr(self._owner, part))
        return saver

    def dump(self) -> Dump:
        """All entries."""
        owner = self._owner
        return {
            "checkpoints": frozenset(
                (thread_id, ns, checkpoint_id, row[2], row[0], row[1])
                for thread_id, namespaces in list(owner.storage.items())
                for ns, rows in list(namespaces.items())
                for checkpoint_id, row in list(rows.items())
            ),
            "writes": frozenset(
                (*place, *slot, row[1], row[2], row[3])
                for place, rows in list(owner.writes.items())
                for slot, row in list(rows.items())
            ),
            "blobs": frozenset(list(owner.blobs.items())),
        }


class Sqlite(Place):
    """A file."""

    _numbers = count()

    def __init__(self, folder: Path, name: str = "") -> None:
        self.path = str(folder / (name or f"{next(self._numbers)}.sqlite"))
        with self.looking() as saver:
            saver.setup()  # type: ignore[attr-defined]

    @asynccontextmanager
    async def opened(self, face: str, latency: Latency) -> AsyncIterator[Saver]:
        """The saver of the face."""
        if face == "ainvoke":
            async with aiosqlite.connect(self.path) as connection:
                saver = late(AsyncSqliteSaver, latency)(connection)
                await saver.setup()
                yield saver
        else:
            with self._connected() as connection:
                yield late(SqliteSaver, latency)(connection)

    @contextmanager
    def looking(self) -> Iterator[Saver]:
        """A saver on another connection."""
        with self._connected() as connection:
            yield SqliteSaver(connection)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, check_same_thread=False)
        try:
            yield connection
        finally:
            connection.close()

    def dump(self) -> Dump:
        """All rows."""
        with self._connected() as connection:
            return {
                table: frozenset(connection.execute(f"SELECT {columns} FROM {table}"))
                for table, columns in _SQLITE.items()
            }


class Postgres(Place):
    """A database, emptied for every scenario."""

    def __init__(self, uri: str, *, empty: bool = True) -> None:
        self.uri = uri
        if empty:
            with self._connected() as connection:
                PostgresSaver(connection).setup()
                # The few rows of a scenario: emptying the files takes several times as long.
                for table, _ in _POSTGRES.values():
                    connection.execute(f"DELETE FROM {table}".encode())

    @classmethod
    def existing(cls, uri: str) -> Postgres:
        """A database as it is."""
        return cls(uri, empty=False)

    @asynccontextmanager
    async def opened(self, face: str, latency: Latency) -> AsyncIterator[Saver]:
        """The saver of the face."""
        if face == "ainvoke":
            saver = late(AsyncPostgresSaver, latency)(await self._aconnected())
            try:
                yield saver
            finally:
                await saver.conn.close()
        else:
            with self._connected() as connection:
                yield late(PostgresSaver, latency)(connection)

    async def mend(self, saver: Any) -> None:
        """Connect again: psycopg gives up a connection if cancelling a query is cancelled.

        LangGraph cancels a save up to three times, on any saver: when a task beside it failed,
        when it gives up the step, and when it leaves the run.
        """
        if isinstance(saver.conn, psycopg.AsyncConnection) and saver.conn.closed:
            saver.conn = await self._aconnected()

    async def _aconnected(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self.uri, **CONNECTION)

    @contextmanager
    def looking(self) -> Iterator[Saver]:
        """A saver on another connection."""
        with self._connected() as connection:
            yield PostgresSaver(connection)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(
            self.uri, autocommit=True, prepare_threshold=0, row_factory=dict_row
        ) as connection:
            yield connection

    def dump(self) -> Dump:
        """All rows."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            return {
                name: frozenset(connection.execute(f"SELECT {columns} FROM {table}"))
                for name, (table, columns) in _POSTGRES.items()
            }
