"""The fence inside the database, against writers that have no guard."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver, InvalidConfigError, NonHeadWriteError
from deerflow_saver.cli.__main__ import main
from deerflow_saver.guard import ddl
from support.savers import Storage

DELTA: Any = {"counters_since_delta_snapshot": {"log": (0, 1)}}
REFUSED = (psycopg.errors.IntegrityConstraintViolation, sqlite3.IntegrityError)


def put(saver: Any, parent: str | None = None, metadata: Any = DELTA) -> str:
    made = {**empty_checkpoint(), "id": str(uuid6())}
    names = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}
    saver.put({"configurable": names}, made, metadata, {})
    return str(made["id"])


@contextmanager
def sqlite(storage: Storage) -> Iterator[tuple[str, Any]]:
    with SqliteSaver.from_conn_string(storage.sqlite_path) as saver:
        saver.setup()
        yield f"sqlite:///{storage.sqlite_path}", saver


@contextmanager
def postgres(storage: Storage) -> Iterator[tuple[str, Any]]:
    with PostgresSaver.from_conn_string(storage.postgres_uri) as saver:
        saver.setup()
        yield storage.postgres_uri, saver


both = pytest.mark.parametrize("backend", [sqlite, postgres])


@both
def test_an_unguarded_writer_is_refused_what_the_guard_would_refuse(
    backend: Any, storage: Storage
) -> None:
    with backend(storage) as (url, saver):
        ddl.install(url)
        with pytest.raises(REFUSED, match="would fork"):
            put(saver, str(uuid6()))  # an orphan
        first = put(saver)
        second = put(saver, first)
        for parent in (first, None):
            with pytest.raises(REFUSED, match="would fork"):
                put(saver, parent)
            with pytest.raises(REFUSED, match="would fork"):
                put(saver, parent, {})
        third = put(saver, second, {"deerflow_delta_channels": ["log"]})
        assert [row.checkpoint["id"] for row in saver.list(None)] == [third, second, first]


@both
def test_the_same_put_again_passes_and_under_another_parent_does_not(
    backend: Any, storage: Storage
) -> None:
    with backend(storage) as (url, saver):
        ddl.install(url)
        first = put(saver)
        second = put(saver, first)
        again = {**empty_checkpoint(), "id": second}
        names = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": first}
        saver.put({"configurable": names}, again, DELTA, {})
        with pytest.raises(REFUSED):
            saver.put({"configurable": {**names, "checkpoint_id": None}}, again, DELTA, {})


@both
def test_full_threads_fork_as_before(backend: Any, storage: Storage) -> None:
    with backend(storage) as (url, saver):
        ddl.install(url)
        first = put(saver, None, {})
        put(saver, first, {})
        put(saver, first, {})


@both
def test_the_guard_works_inside_the_fence(backend: Any, storage: Storage) -> None:
    with backend(storage) as (url, saver):
        ddl.install(url)
        guarded = CachedHistorySaver(saver)
        first = put(guarded)
        put(guarded, first)
        with pytest.raises(NonHeadWriteError):
            put(guarded, first)


@both
def test_a_removed_fence_stops_nobody(backend: Any, storage: Storage) -> None:
    with backend(storage) as (url, saver):
        ddl.install(url)
        ddl.install(url)
        assert ddl.check(url).installed
        ddl.remove(url)
        first = put(saver)
        put(saver, first)
        put(saver, first)
        assert ddl.check(url) == ddl.FenceReport(
            installed=False, forks=(ddl.Fork("t", "", first, 2),)
        )


def test_a_postgres_session_may_be_let_through(storage: Storage) -> None:
    with postgres(storage) as (url, saver):
        ddl.install(url)
        first = put(saver)
        put(saver, first)
        saver.conn.execute(f"SET {ddl.ALLOW_SETTING} = on")
        put(saver, first)


@both
def test_the_command_installs_checks_and_removes(
    backend: Any, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    with backend(storage) as (url, _):
        assert main(["fence", "check", "--db", url]) == 1
        assert main(["fence", "install", "--db", url]) == 0
        assert main(["fence", "check", "--db", url]) == 0
        capsys.readouterr()
        assert main(["fence", "remove", "--db", url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"installed": False, "forks": []}


@pytest.mark.parametrize("url", ["mysql://host", "sqlite:///nowhere.sqlite"])
def test_a_database_that_cannot_be_fenced_is_bad_usage(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidConfigError):
        ddl.check(url)
    assert main(["fence", "check", "--db", url]) == 2
    assert "error" in capsys.readouterr().err


def test_the_command_asks_for_a_database(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert main(["fence", "check"]) == 2
    assert "--db" in capsys.readouterr().err


def test_a_path_names_a_sqlite_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteSaver.from_conn_string("with space#.sqlite") as saver:
        saver.setup()
    assert main(["fence", "install", "--db", "with space#.sqlite"]) == 0
    assert main(["fence", "check", "--db", str(tmp_path / "with space#.sqlite")]) == 0
    capsys.readouterr()


def test_a_database_without_tables_is_bad_usage(
    tmp_path: Path, postgres_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new.sqlite").touch()
    for url in (f"sqlite:///{tmp_path}/new.sqlite", postgres_database):
        for action in ("check", "install"):
            assert main(["fence", action, "--db", url]) == 2
            assert "call its setup() first" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["host=x password=hush", "postgresql://me:hush@127.0.0.1:1/x"])
def test_no_password_is_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fence", "check", "--db", url]) == 2
    assert "hush" not in capsys.readouterr().err
