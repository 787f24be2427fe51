"""A fence inside the database: a trigger that refuses forks of writers without a guard.

The trigger knows the rule for `put`, by the same signals the guard stamps and reads. It does
not see `put_writes`, nor what a run has read; it is for deployments where older or foreign
programs write to the same tables. In Postgres it takes a lock of its own, so that two such
writers meet. SQLite has one writer at a time; a unique index would not do there, because the
saver's `INSERT OR REPLACE` would delete the first child without an error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from deerflow_saver.errors import InvalidConfigError

__all__ = [
    "ALLOW_SETTING",
    "LITE_DELTA",
    "PG_DELTA",
    "FenceReport",
    "Fork",
    "check",
    "found_by",
    "install",
    "remove",
]

NAME = "deerflow_saver_fence"
ALLOW_SETTING = "deerflow_saver.allow_fork"
"""Postgres setting that lets a session through: `SET deerflow_saver.allow_fork = on`."""

_MESSAGE = "deerflow-saver fence: this checkpoint would fork a thread with delta channels"


@dataclass(frozen=True, slots=True)
class Fork:
    """A checkpoint with several children in a namespace that shows delta channels."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    """None: the namespace has several first checkpoints."""
    children: int


@dataclass(frozen=True, slots=True)
class FenceReport:
    """What `check` found."""

    installed: bool
    forks: tuple[Fork, ...] = ()


PG_DELTA = """(
    coalesce(jsonb_typeof({m}->'deerflow_delta_channels') = 'array'
        AND jsonb_array_length({m}->'deerflow_delta_channels') > 0, false)
    OR {m} ? 'counters_since_delta_snapshot'
    OR coalesce({m}->>'step' = '-2', false)
    OR coalesce({m}->>'deerflow_checkpoint_channel_mode' = 'delta', false))"""
"""Whether the metadata `{m}` of a checkpoint shows delta channels, as a Postgres condition."""

_PG_INSTALL = f"""
CREATE OR REPLACE FUNCTION {NAME}() RETURNS trigger LANGUAGE plpgsql AS $fence$
DECLARE
    head record;
BEGIN
    IF coalesce(current_setting('{ALLOW_SETTING}', true), '') = 'on' THEN
        RETURN NEW;
    END IF;
    PERFORM pg_advisory_xact_lock(
        hashtextextended('{NAME}' || NEW.thread_id || chr(1) || NEW.checkpoint_ns, 0));
    SELECT checkpoint_id, parent_checkpoint_id, metadata INTO head FROM checkpoints
        WHERE thread_id = NEW.thread_id AND checkpoint_ns = NEW.checkpoint_ns
        ORDER BY checkpoint_id DESC LIMIT 1;
    IF NOT FOUND THEN
        IF NEW.parent_checkpoint_id IS NULL OR NOT {PG_DELTA.format(m="NEW.metadata")} THEN
            RETURN NEW;
        END IF;
    ELSIF NOT ({PG_DELTA.format(m="NEW.metadata")} OR {PG_DELTA.format(m="head.metadata")})
        OR (head.checkpoint_id = NEW.checkpoint_id
            AND head.parent_checkpoint_id IS NOT DISTINCT FROM NEW.parent_checkpoint_id)
        OR (head.checkpoint_id = NEW.parent_checkpoint_id
            AND NEW.checkpoint_id > head.checkpoint_id) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '{_MESSAGE}'
        USING ERRCODE = 'integrity_constraint_violation',
        DETAIL = format('thread %s, namespace %s, parent %s, head %s', NEW.thread_id,
            NEW.checkpoint_ns, NEW.parent_checkpoint_id, head.checkpoint_id);
END $fence$;
CREATE OR REPLACE TRIGGER {NAME} BEFORE INSERT ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION {NAME}();
"""  # noqa: S608 - built from constants
_PG_REMOVE = f"""
DROP TRIGGER IF EXISTS {NAME} ON checkpoints;
DROP FUNCTION IF EXISTS {NAME}();
"""
_PG_INSTALLED = f"SELECT 1 FROM pg_trigger WHERE tgname = '{NAME}' AND tgenabled <> 'D'"  # noqa: S608
_FORKS = """
SELECT thread_id, checkpoint_ns, parent_checkpoint_id, count(*) FROM checkpoints
GROUP BY thread_id, checkpoint_ns, parent_checkpoint_id
HAVING count(*) > 1 AND max(CASE WHEN {delta} THEN 1 ELSE 0 END) = 1
ORDER BY thread_id, checkpoint_ns, parent_checkpoint_id
"""

LITE_DELTA = """(CASE
    WHEN NOT json_valid(CAST({m} AS TEXT)) THEN 0
    WHEN json_array_length(CAST({m} AS TEXT), '$.deerflow_delta_channels') > 0 THEN 1
    WHEN json_type(CAST({m} AS TEXT), '$.counters_since_delta_snapshot') = 'object' THEN 1
    WHEN json_extract(CAST({m} AS TEXT), '$.step') = -2 THEN 1
    WHEN json_extract(CAST({m} AS TEXT), '$.deerflow_checkpoint_channel_mode') = 'delta' THEN 1
    ELSE 0 END = 1)"""
"""The same for SQLite."""
_LITE_HEAD = """SELECT checkpoint_id, parent_checkpoint_id, metadata FROM checkpoints
        WHERE thread_id = NEW.thread_id AND checkpoint_ns = NEW.checkpoint_ns
        ORDER BY checkpoint_id DESC LIMIT 1"""
_LITE_INSTALL = f"""
CREATE TRIGGER IF NOT EXISTS {NAME} BEFORE INSERT ON checkpoints BEGIN
    SELECT RAISE(ABORT, '{_MESSAGE}') FROM ({_LITE_HEAD}) AS head
    WHERE ({LITE_DELTA.format(m="NEW.metadata")} OR {LITE_DELTA.format(m="head.metadata")})
        AND NOT (head.checkpoint_id = NEW.checkpoint_id
            AND head.parent_checkpoint_id IS NEW.parent_checkpoint_id)
        AND NOT (head.checkpoint_id IS NEW.parent_checkpoint_id
            AND NEW.checkpoint_id > head.checkpoint_id);
    SELECT RAISE(ABORT, '{_MESSAGE}')
    WHERE NEW.parent_checkpoint_id IS NOT NULL AND {LITE_DELTA.format(m="NEW.metadata")}
        AND NOT EXISTS ({_LITE_HEAD});
END
"""  # noqa: S608 - built from constants
_LITE_INSTALLED = f"SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = '{NAME}'"  # noqa: S608


def install(url: str) -> None:
    """Install the fence, or replace an older version of it."""
    if _is_postgres(url):
        _postgres(url, _PG_INSTALL)
    else:
        _sqlite(url, f"DROP TRIGGER IF EXISTS {NAME}")
        _sqlite(url, _LITE_INSTALL)


def remove(url: str) -> None:
    """Remove the fence, if it is there."""
    if _is_postgres(url):
        _postgres(url, _PG_REMOVE)
    else:
        _sqlite(url, f"DROP TRIGGER IF EXISTS {NAME}")


def check(url: str) -> FenceReport:
    """Whether the fence is there, and which checkpoints are forked."""
    postgres = _is_postgres(url)
    ask = _postgres if postgres else _sqlite
    return found_by(lambda statement: ask(url, statement), postgres=postgres)


def found_by(ask: Callable[[str], list[Any]], *, postgres: bool) -> FenceReport:
    """The same through `ask`, which runs a reading statement and gives its rows."""
    installed, delta = (_PG_INSTALLED, PG_DELTA) if postgres else (_LITE_INSTALLED, LITE_DELTA)
    forks = ask(_FORKS.format(delta=delta.format(m="metadata")))
    return FenceReport(bool(ask(installed)), tuple(Fork(*found) for found in forks))


def _is_postgres(url: str) -> bool:
    """Which kind of database the URL names.

    Raises:
        InvalidConfigError: neither kind.

    """
    scheme = urlsplit(url).scheme
    if scheme in {"postgres", "postgresql"}:
        return True
    if scheme == "sqlite":
        return False
    msg = f"the URL must begin with postgresql:// or sqlite:///, got {url!r}"
    raise InvalidConfigError(msg)


def _postgres(url: str, statement: str) -> list[Any]:
    import psycopg

    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def _sqlite(url: str, statement: str) -> list[Any]:
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    if not path.is_file():
        msg = f"there is no SQLite database at {path}"
        raise InvalidConfigError(msg)
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()
