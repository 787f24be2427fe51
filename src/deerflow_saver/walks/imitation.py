"""Just enough of a Postgres connection to run a saver's own paging code on rows in memory.

It answers the statements of LangGraph's walk and listing by what they say (their bound,
their page size, their columns). A statement it does not know raises, and a class that
cannot be probed is treated as one that may lose rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from psycopg import AsyncConnection, Connection

__all__ = ["AsyncImitation", "Imitation", "PrunableRows", "PruningError", "Rows"]

_PARAMETERS_PER_BRANCH = 4


@dataclass
class Rows:
    """One thread of one delta channel; a value is stored under its checkpoint's id as version."""

    parents: dict[str, str | None]
    writes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    blobs: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    none: str | None = None
    """The checkpoint whose row has the channel's key with JSON's null."""

    def answer(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        """The rows Postgres would send."""
        if "_kind" in sql:
            return self._stored(sql, parameters)
        if "pending_writes" in sql:
            return [self._row(cid) for cid in sorted(self.parents, reverse=True)]
        if " AS ver_0" in sql and "ORDER BY checkpoint_id DESC LIMIT %s" in sql:
            return self._page(sql, *parameters[-2:])
        msg = f"a statement that is not known here: {sql[:200]}"
        raise LookupError(msg)

    def _page(self, sql: str, bound: str | None, size: int) -> list[dict[str, Any]]:
        ids = sorted(self.parents, reverse=True)
        if bound is not None:
            inclusive = "checkpoint_id <= %s" in sql
            ids = [cid for cid in ids if cid < bound or (inclusive and cid == bound)]
        return [
            {
                "checkpoint_id": cid,
                "parent_checkpoint_id": self.parents[cid],
                "ver_0": cid,
                "hs_0": cid == self.none,  # of other values only snapshots leave a marker there
                "hb_0": cid in self.blobs,
                "inline_0": None,
            }
            for cid in ids[:size]
        ]

    def _stored(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for number, branch in enumerate(sql.split(" UNION ALL ")):
            start = number * _PARAMETERS_PER_BRANCH
            _, _, channel, wanted = parameters[start : start + _PARAMETERS_PER_BRANCH]
            if "'w'" in branch:
                rows += [
                    {"_kind": "w", "channel": channel, "checkpoint_id": cid, **write}
                    for cid in wanted
                    for write in self.writes.get(cid, ())
                ]
            elif wanted in self.blobs:
                kind, blob = self.blobs[wanted]
                row = {"_kind": "b", "channel": channel, "version": wanted}
                rows.append({**row, "type": kind, "blob": blob})
        return rows

    def _row(self, checkpoint_id: str) -> dict[str, Any]:
        return {
            "thread_id": "probe",
            "checkpoint_ns": "",
            "checkpoint_id": checkpoint_id,
            "parent_checkpoint_id": self.parents[checkpoint_id],
            "checkpoint": {"v": 4, "id": checkpoint_id, "channel_versions": {}},
            "metadata": {},
            "channel_values": None,
            "pending_writes": None,
            "pending_sends": None,
        }


class PruningError(Exception):
    """A statement that deletes rows was sent."""


class PrunableRows(Rows):
    """A thread without counters and snapshots: what a `prune` is told about it."""

    def answer(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        """Nothing that marks a delta thread, and the head.

        Raises:
            PruningError: the prune goes on to delete.
            LookupError: the statement is not known, one that looks at writes for example.

        """
        if "DELETE" in sql:
            raise PruningError
        if "counters_since_delta_snapshot" in sql and "checkpoint_writes" not in sql:
            return []
        if "DISTINCT ON (checkpoint_ns)" in sql:
            head = {"head": max(self.parents), "checkpoint_ns": "", "sends_parent": None}
            return [{**head, "root": None, "root_saved": False}]
        if sql.startswith(("SET TRANSACTION", "\nSELECT checkpoint_id FROM checkpoints\n")):
            return [{"checkpoint_id": cid} for cid in self.parents if cid != max(self.parents)]
        return super().answer(sql, parameters)


class _Cursor:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._answer: list[dict[str, Any]] = []

    def run(self, sql: str, parameters: Sequence[Any]) -> None:
        self._answer = self._rows.answer(sql, parameters)

    def take(self) -> list[dict[str, Any]]:
        answer, self._answer = self._answer, []
        return answer


class _SyncCursor(_Cursor):
    @property
    def connection(self) -> Any:
        """What a transaction is begun on."""
        return self

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Nothing to begin or to end."""
        yield

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), **_: Any) -> _SyncCursor:
        self.run(sql, parameters)
        return self

    def fetchall(self) -> list[dict[str, Any]]:
        return self.take()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.take())


class _AsyncCursor(_Cursor):
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""

    async def execute(self, sql: str, parameters: Sequence[Any] = (), **_: Any) -> _AsyncCursor:
        self.run(sql, parameters)
        return self

    async def fetchall(self) -> list[dict[str, Any]]:
        return self.take()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        for row in self.take():
            yield row


class Imitation(Connection[Any]):
    """A connection that was never opened; savers accept nothing but their driver's class."""

    def __init__(self, rows: Rows) -> None:
        """No connection is made: the driver's own initialiser is not run."""
        self._imitated = rows

    def cursor(self, *_: Any, **__: Any) -> Any:
        """A cursor over the rows."""
        return _SyncCursor(self._imitated)


class AsyncImitation(AsyncConnection[Any]):
    """The same for the async savers."""

    def __init__(self, rows: Rows) -> None:
        """See `Imitation`."""
        self._imitated = rows

    def cursor(self, *_: Any, **__: Any) -> Any:
        """A cursor over the rows."""
        return _AsyncCursor(self._imitated)
