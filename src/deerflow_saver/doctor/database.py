"""Look at a database, reading only: nothing is created, migrated or locked for writing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deerflow_saver.doctor.urls import Address
from deerflow_saver.guard import ddl

__all__ = ["DatabaseReport", "MissingDatabaseError", "inspect", "reading"]

Ask = Callable[[str], list[Any]]

_TABLES = frozenset({"checkpoints", "writes"})
_PG_TABLES = frozenset({"checkpoints", "checkpoint_writes", "checkpoint_blobs"})
_NULL_TASK = "00000000-0000-0000-0000-000000000000"


class MissingDatabaseError(Exception):
    """There is nothing to look at."""


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """What is stored, in threads that show delta channels where it says so.

    Attributes:
        kind: `sqlite` or `postgres`.
        address: without passwords.
        set_up: whether the saver's tables are there; if not, every count is 0.
        outdated: what the installed saver's `setup()` would still add; None if nothing.
        threads: all threads.
        delta_namespaces: namespaces of threads that show delta channels.
        forks: checkpoints with several children, in those; see `guard.ddl.Fork`.
        missing_parents: parents that are named and not there, in those.
        parents_after_children: checkpoints whose parent's id sorts after their own, in those.
        unordered_writes: unfinished steps with writes whose place among parallel ones was not
            stored, in those.
        fence: whether the fence's trigger is installed.

    """

    kind: str
    address: str
    set_up: bool = False
    outdated: str | None = None
    threads: int = 0
    delta_namespaces: int = 0
    forks: tuple[ddl.Fork, ...] = ()
    missing_parents: int = 0
    parents_after_children: int = 0
    unordered_writes: int = 0
    fence: bool = False


def inspect(where: Address) -> DatabaseReport:
    """Look at the database of an address.

    Raises:
        MissingDatabaseError: there is no such file.

    """
    with reading(where) as ask:
        look = _Sqlite(ask) if where.kind == "sqlite" else _Postgres(ask)
        if not look.set_up():
            return DatabaseReport(where.kind, where.shown)
        found = ddl.found_by(ask, postgres=where.kind == "postgres")
        return DatabaseReport(
            where.kind,
            where.shown,
            set_up=True,
            outdated=look.outdated(),
            forks=found.forks,
            fence=found.installed,
            **_counts(ask, look),
        )


@contextmanager
def reading(where: Address) -> Iterator[Ask]:
    """A connection that the database itself keeps from writing."""
    if where.kind == "postgres":
        import psycopg

        with psycopg.connect(where.target) as connection:
            connection.read_only = True
            yield lambda statement: connection.execute(statement.encode()).fetchall()
        return
    path = Path(where.target).absolute()
    if not path.is_file():
        raise MissingDatabaseError(f"there is no SQLite database at {where.shown}")
    with closing(sqlite3.connect(_read_only(path), uri=True)) as connection:
        yield lambda statement: connection.execute(statement).fetchall()


def _read_only(path: Path) -> str:
    """A URI by which SQLite creates nothing.

    Even a reader makes the two files of a write-ahead log, and leaves them there. Without
    them nobody has the database open, and it can be read as one that does not change.
    """
    uri = f"{path.as_uri()}?mode=ro"
    with path.open("rb") as file:
        header = file.read(20)
    logged = len(header) == 20 and header[18] == 2  # noqa: PLR2004 - SQLite's read version
    real = path.resolve()
    alone = logged and not real.with_name(f"{real.name}-wal").exists()
    return f"{uri}&immutable=1" if alone else uri


class _Sqlite:
    delta = ddl.LITE_DELTA
    writes = "writes"

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def set_up(self) -> bool:
        names = {row[0] for row in self._ask("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return names >= _TABLES

    def outdated(self) -> str | None:
        """The column in which newer releases keep the order of parallel writes."""
        from langgraph.checkpoint.sqlite import _delta

        newer = hasattr(_delta, "writes_sort_key")
        return "the column writes.task_path" if newer and not self.has_paths() else None

    def has_paths(self) -> bool:
        return any(row[1] == "task_path" for row in self._ask("PRAGMA table_info(writes)"))


class _Postgres:
    delta = ddl.PG_DELTA
    writes = "checkpoint_writes"

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def set_up(self) -> bool:
        found = self._ask(
            "SELECT relname FROM pg_class WHERE pg_table_is_visible(oid) AND relkind IN ('r', 'p')"
        )
        return {row[0] for row in found} >= _PG_TABLES

    def outdated(self) -> str | None:
        from langgraph.checkpoint.postgres.base import MIGRATIONS

        there = self._ask("SELECT coalesce(max(v), -1) FROM checkpoint_migrations")[0][0]
        missing = len(MIGRATIONS) - 1 - int(there)
        return f"{missing} migrations" if missing > 0 else None

    def has_paths(self) -> bool:
        column = self._ask(
            "SELECT 1 FROM pg_attribute WHERE attrelid = 'checkpoint_writes'::regclass "
            "AND attname = 'task_path' AND NOT attisdropped"
        )
        return bool(column)


def _counts(ask: Ask, look: _Sqlite | _Postgres) -> dict[str, int]:
    """The counts of a report, one statement each."""
    shows = look.delta.format(m="metadata")
    delta = (
        "WITH delta AS (SELECT thread_id, checkpoint_ns, max(checkpoint_id) AS head "  # noqa: S608
        "FROM checkpoints GROUP BY thread_id, checkpoint_ns "
        f"HAVING max(CASE WHEN {shows} THEN 1 ELSE 0 END) = 1) "
    )
    joined = "FROM checkpoints c JOIN delta USING (thread_id, checkpoint_ns) WHERE "
    statements = {
        "threads": "SELECT count(DISTINCT thread_id) FROM checkpoints",
        "delta_namespaces": f"{delta}SELECT count(*) FROM delta",  # noqa: S608 - from constants
        "missing_parents": delta + "SELECT count(*) FROM ("  # noqa: S608
        f"SELECT thread_id, checkpoint_ns, c.parent_checkpoint_id {joined}"
        "c.parent_checkpoint_id IS NOT NULL "
        "EXCEPT SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints) AS missing",
        "parents_after_children": delta
        + f"SELECT count(*) {joined}c.parent_checkpoint_id > c.checkpoint_id",
    }
    if look.has_paths():
        statements["unordered_writes"] = (
            delta + "SELECT count(DISTINCT (w.thread_id || w.checkpoint_ns)) "  # noqa: S608
            f"FROM {look.writes} w JOIN delta d ON w.thread_id = d.thread_id "
            "AND w.checkpoint_ns = d.checkpoint_ns AND w.checkpoint_id = d.head "
            f"WHERE w.task_path = '' AND w.task_id <> '{_NULL_TASK}' "
            "AND substr(w.channel, 1, 2) <> '__'"
        )
    return {name: int(ask(statement)[0][0]) for name, statement in statements.items()}
