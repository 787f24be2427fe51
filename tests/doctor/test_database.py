"""Looking at a database: what is found, and that nothing is changed."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import fixes
from deerflow_saver.cli.__main__ import main
from deerflow_saver.doctor.database import DatabaseReport, MissingDatabaseError, inspect, reading
from deerflow_saver.doctor.urls import address
from deerflow_saver.guard.ddl import Fork
from support.savers import Storage

KINDS = ("sqlite", "postgres")
DELTA = {"source": "loop", "step": 0, "counters_since_delta_snapshot": {"log": [1, 1]}}


def _address(kind: str, storage: Storage) -> str:
    return storage.sqlite_path if kind == "sqlite" else storage.postgres_uri


@pytest.fixture
def untouched(request: pytest.FixtureRequest, storage: Storage) -> Callable[[str], str]:
    """The address of a database of that kind on which no saver was set up."""

    def make(kind: str) -> str:
        if kind == "postgres":
            return str(request.getfixturevalue("postgres_database"))
        Path(storage.sqlite_path).touch()
        return storage.sqlite_path

    return make


@contextmanager
def _saver(kind: str, where: str) -> Iterator[Any]:
    cls: Any = SqliteSaver if kind == "sqlite" else PostgresSaver
    with cls.from_conn_string(where) as saver:
        saver.setup()
        yield saver


def _fill(kind: str, where: str) -> None:
    """A sound thread, a fork, a thread whose root is gone, and one with a clock that was behind."""
    with _saver(kind, where) as saver:
        _line(saver, "sound", ["1", "2", "3"])
        base = _line(saver, "forked", ["1", "2"])
        _put(saver, base, "3")
        _put(saver, base, "4")
        _line(saver, "behind", ["1", "3", "2"])
        _line(saver, "severed", ["1", "2", "3"])
    _execute(kind, where, "DELETE FROM checkpoints WHERE thread_id = 'severed' AND "
             "checkpoint_id = '1'")  # fmt: skip


def _line(saver: Any, thread_id: str, ids: list[str]) -> Any:
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    for checkpoint_id in ids:
        config = _put(saver, config, checkpoint_id)
    return config


def _put(saver: Any, config: Any, checkpoint_id: str) -> Any:
    return saver.put(config, {**empty_checkpoint(), "id": checkpoint_id}, DELTA, {})


def _execute(kind: str, where: str, statement: str) -> None:
    if kind == "sqlite":
        with closing(sqlite3.connect(where)) as connection, connection:
            connection.execute(statement)
    else:
        with psycopg.connect(where) as connection:
            connection.execute(statement.encode())


def _dump(kind: str, where: str) -> Any:
    """Every row with the transaction that wrote it, and every relation of the database."""
    if kind == "sqlite":
        with closing(sqlite3.connect(where)) as connection:
            lines = list(connection.iterdump())
            schema = connection.execute("PRAGMA schema_version").fetchone()
        return hashlib.sha256(Path(where).read_bytes()).hexdigest(), lines, schema
    with psycopg.connect(where) as connection:
        relations = connection.execute(
            "SELECT relname, relkind, xmin::text FROM pg_class ORDER BY oid"
        ).fetchall()
        tables = [
            name for name, kind_, _ in relations if kind_ == "r" and name.startswith("checkpoint")
        ]
        rows = [
            connection.execute(f"SELECT xmin::text, t.* FROM {name} t ORDER BY ctid").fetchall()
            for name in tables
        ]
    return relations, rows


@pytest.mark.parametrize("kind", KINDS)
def test_the_counts_are_those_of_what_is_stored(kind: str, storage: Storage) -> None:
    where = _address(kind, storage)
    _fill(kind, where)
    found = inspect(address(where))
    assert found == DatabaseReport(
        kind,
        address(where).shown,
        set_up=True,
        threads=4,
        delta_namespaces=4,
        forks=(Fork("forked", "", "2", 2),),
        missing_parents=1,
        parents_after_children=1,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_begun_without_order_counts_while_it_is_unfinished(
    kind: str, storage: Storage, order_of: Callable[[str], str]
) -> None:
    if kind == "sqlite" and order_of(kind) == "task id":
        pytest.skip("this release keeps no order in its tables")
    where = _address(kind, storage)
    with _saver(kind, where) as saver:
        head = _line(saver, "paused", ["1", "2"])
        saver.put_writes(head, [("log", ["a"])], "task-a")
        saver.put_writes(head, [("log", ["b"])], "task-b", "~__pregel_pull, b")
    assert inspect(address(where)).unordered_writes == 1
    with _saver(kind, where) as saver:
        _put(saver, head, "3")
    assert inspect(address(where)).unordered_writes == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filled", [True, False], ids=["filled", "not set up"])
def test_nothing_is_changed(
    kind: str,
    untouched: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
    *,
    filled: bool,
) -> None:
    where = untouched(kind)
    if filled:
        _fill(kind, where)
    before = _dump(kind, where)
    assert main(["doctor", "--db", where]) in {0, 1}
    assert _dump(kind, where) == before
    if not filled:
        assert "not set up" in capsys.readouterr().out


def test_no_file_is_made_beside_a_sqlite_database_that_nobody_has_open(storage: Storage) -> None:
    _fill("sqlite", storage.sqlite_path)
    file = Path(storage.sqlite_path)
    assert file.read_bytes()[18] == 2, "the savers keep a write-ahead log"
    before = sorted(file.parent.glob(f"{file.name}*"))
    assert inspect(address(storage.sqlite_path)).threads == 4
    assert sorted(file.parent.glob(f"{file.name}*")) == before


def test_rows_that_are_only_in_the_log_of_an_open_sqlite_database_count(storage: Storage) -> None:
    with _saver("sqlite", storage.sqlite_path) as saver:
        _line(saver, "sound", ["1", "2"])
        assert inspect(address(storage.sqlite_path)).threads == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_database_itself_refuses_to_write_for_the_doctor(kind: str, storage: Storage) -> None:
    where = _address(kind, storage)
    _fill(kind, where)
    errors = (sqlite3.OperationalError, psycopg.errors.ReadOnlySqlTransaction)
    with reading(address(where)) as ask, pytest.raises(errors):
        ask("DELETE FROM checkpoints")


@pytest.mark.parametrize("kind", KINDS)
def test_wounds_end_with_status_1_and_a_sound_database_with_0(
    kind: str, storage: Storage, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    _no_defects(monkeypatch)
    where = _address(kind, storage)
    with _saver(kind, where) as saver:
        _line(saver, "sound", ["1", "2"])
    assert main(["doctor", "--db", where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []
    _fill(kind, where)
    assert main(["doctor", "--db", where, "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [one["slug"] for one in problems] == ["threads-forked-before", "missing-parents"]
    accepted = ["--accept", "threads-forked-before", "--accept", "missing-parents"]
    if _known("threads-forked-before"):
        assert main(["doctor", "--db", where, *accepted]) == 0


def test_forks_get_the_same_advice_with_and_without_a_database(
    storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill("sqlite", storage.sqlite_path)
    main(["doctor", "--db", storage.sqlite_path, "--json"])
    problems = json.loads(capsys.readouterr().out)["problems"]
    told = next(one["advice"] for one in problems if one["slug"] == "threads-forked-before")
    (row,) = (one for one in fixes.status() if one.slug == "threads-forked-before")
    assert told == row.advice
    assert "'observe' or 'off'" in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_scratch_thread_leaves_no_row(
    kind: str, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    where = _address(kind, storage)
    _fill(kind, where)
    before = _dump(kind, where)
    main(["doctor", "--db", where, "--scratch-thread"])
    after = _dump(kind, where)
    shown = capsys.readouterr()
    assert "deerflow-saver-doctor-" in shown.out
    assert "written and deleted" in shown.out
    assert "writing a scratch thread" in shown.err
    if kind == "sqlite":  # its file may differ, its contents may not
        before, after = before[1:], after[1:]
    assert after == before


@pytest.mark.parametrize("kind", KINDS)
def test_no_scratch_thread_is_written_where_it_would_set_tables_up(
    kind: str, untouched: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    where = untouched(kind)
    before = _dump(kind, where)
    assert main(["doctor", "--db", where, "--scratch-thread"]) == 2
    assert "is not set up: call the saver's setup() first" in capsys.readouterr().err
    assert _dump(kind, where) == before


def test_a_table_of_an_older_saver_is_named_and_not_migrated(
    storage: Storage, capsys: pytest.CaptureFixture[str], order_of: Callable[[str], str]
) -> None:
    if order_of("sqlite") == "task id":
        pytest.skip("this release keeps no order in its tables")
    where = storage.sqlite_path
    _fill("sqlite", where)
    _execute("sqlite", where, "ALTER TABLE writes DROP COLUMN task_path")
    before = _dump("sqlite", where)
    assert inspect(address(where)).outdated == "the column writes.task_path"
    assert main(["doctor", "--db", where, "--scratch-thread"]) == 2
    assert "lacks the column writes.task_path" in capsys.readouterr().err
    assert _dump("sqlite", where) == before


def test_migrations_that_were_not_made_are_counted(storage: Storage) -> None:
    where = storage.postgres_uri
    _fill("postgres", where)
    _execute("postgres", where, "DELETE FROM checkpoint_migrations WHERE v >= 8")
    assert inspect(address(where)).outdated in {"1 migrations", "2 migrations"}


def test_a_missing_file_is_said_and_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "absent.sqlite"
    with pytest.raises(MissingDatabaseError):
        inspect(address(str(path)))
    assert main(["doctor", "--db", f"sqlite:///{path}"]) == 2
    assert f"there is no SQLite database at {path}" in capsys.readouterr().err
    assert not path.exists()


def test_a_file_that_is_no_database_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to have the header of one" * 20)
    assert main(["doctor", "--db", str(path)]) == 2
    assert "file is not a database" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:hunter2@127.0.0.1:1/app?connect_timeout=2",
        "host=127.0.0.1 port=1 dbname=app user=u password=hunter2 connect_timeout=2",
        "postgresql://127.0.0.1:1/app?user=u&password=hunter2&connect_timeout=2",
        "postgresql://user:hunter2 with space@127.0.0.1:1/app",
        "postgresql://user:hunter2@127.0.0.1:1/app?no_such_option=1",
        "postgresql://user:hunter2/x@127.0.0.1/app",
        "postgresql://user:hunter2?x@127.0.0.1/app",
        "postgresql://user:hunter%32@127.0.0.1:1/app?connect_timeout=2",
        "user=u password='hunter2' connect_timeout=2 port=1 host=127.0.0.1",
        "user=u password=hunter2",
        "mysql://user:hunter2@host/app",
    ],
)
def test_a_password_is_never_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--db", text]) == 2
    shown = capsys.readouterr()
    assert "hunter2" not in shown.out + shown.err


def test_the_address_of_a_report_has_no_password() -> None:
    shown = address("postgresql://user:hunter2@host/app?sslpassword=hunter2").shown
    assert shown == "postgresql://user:***@host/app?sslpassword=***"


def test_the_environment_names_the_database(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert main(["doctor", "--db"]) == 2
    _fill("sqlite", storage.sqlite_path)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{storage.sqlite_path}")
    main(["doctor", "--db"])
    assert storage.sqlite_path in capsys.readouterr().out


def _no_defects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is stored counts."""
    monkeypatch.setattr("deerflow_saver.fixes.status", lambda: ())


def _known(slug: str) -> bool:
    return any(defect.slug == slug for defect in fixes.DEFECTS)
