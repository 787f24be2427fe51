"""On Postgres a write depends on what the guard expects to find, in one trip; else it looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg._preparing import Prepare, PrepareManager
from psycopg.errors import CheckViolation, InvalidTextRepresentation, PipelineAborted
from psycopg_pool import ConnectionPool

from deerflow_saver import CachedHistorySaver, NonHeadWriteError, WriteSlotTakenError
from deerflow_saver.guard import fence_postgres
from deerflow_saver.guard.fence_postgres import AsyncPostgresFence, PostgresFence, _unmasked
from deerflow_saver.guard.postgres_forecast import sent_ahead
from guard.bare import DELTA, checkpoint, config, put
from support.savers import CONNECTION


@contextmanager
def single(uri: str) -> Iterator[PostgresSaver]:
    with PostgresSaver.from_conn_string(uri) as saver:
        yield saver


@contextmanager
def pipelined(uri: str) -> Iterator[PostgresSaver]:
    with PostgresSaver.from_conn_string(uri, pipeline=True) as saver:
        yield saver


@contextmanager
def pooled(uri: str) -> Iterator[PostgresSaver]:
    pool: Any = ConnectionPool(uri, kwargs=CONNECTION, min_size=1, max_size=2, open=False)
    with pool:
        yield PostgresSaver(pool)


@contextmanager
def unprepared(uri: str) -> Iterator[PostgresSaver]:
    """As behind a proxy that keeps no prepared statements."""
    options: Any = {**CONNECTION, "prepare_threshold": None}
    with psycopg.connect(uri, **options) as connection:
        yield PostgresSaver(connection)


@contextmanager
def in_transactions(uri: str) -> Iterator[PostgresSaver]:
    """A pool whose connections begin a transaction by themselves, and commit on return."""
    options: Any = {**CONNECTION, "autocommit": False}
    pool: Any = ConnectionPool(uri, kwargs=options, min_size=1, max_size=2, open=False)
    with pool:
        yield PostgresSaver(pool)


KINDS: list[Any] = [single, pipelined, pooled, unprepared, in_transactions]
every_kind = pytest.mark.parametrize("opened", KINDS)


def set_up(uri: str) -> None:
    with single(uri) as saver:
        saver.setup()


@contextmanager
def read_head(opened: Any, uri: str) -> Iterator[tuple[CachedHistorySaver, PostgresSaver, str]]:
    """A guarded saver that has put a head and read it, a raw one beside it, and the head's id."""
    with opened(uri) as inner, single(uri) as other:
        set_up(uri)
        saver = CachedHistorySaver(inner)
        head = put(saver)
        saver.get_tuple(config())
        yield saver, other, head


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The looks that were taken, by face."""
    taken: list[str] = []
    look, alook = PostgresFence.look, AsyncPostgresFence.alook

    def counting(self: Any, asked: Any) -> Any:
        taken.append("look")
        return look(self, asked)

    async def acounting(self: Any, asked: Any) -> Any:
        taken.append("alook")
        return await alook(self, asked)

    monkeypatch.setattr(PostgresFence, "look", counting)
    monkeypatch.setattr(AsyncPostgresFence, "alook", acounting)
    return taken


@every_kind
def test_what_goes_on_from_a_known_head_is_stored_without_a_look(
    opened: Any, postgres_database: str, looks: list[str]
) -> None:
    with opened(postgres_database) as inner:
        set_up(postgres_database)
        saver = CachedHistorySaver(inner)
        head = put(saver)
        looks.clear()
        for turn in range(3):
            saver.put_writes(config(head), [("log", [turn])], f"task {turn}")
            head = put(saver, head)
        assert looks == []
        assert len(list(inner.list(config()))) == 4
        assert inner.get_tuple(config()).checkpoint["id"] == head


async def test_the_same_on_the_async_face(postgres_database: str, looks: list[str]) -> None:
    async with AsyncPostgresSaver.from_conn_string(postgres_database) as inner:
        await inner.setup()
        saver = CachedHistorySaver(inner)
        parent: str | None = None
        for _ in range(3):
            made = checkpoint()
            await saver.aput(config(parent), made, DELTA, {})
            parent = made["id"]
            await saver.aput_writes(config(parent), [("log", ["x"])], "task")
        assert looks == ["alook"]
        assert len([found async for found in inner.alist(config())]) == 3


@every_kind
def test_a_head_that_somebody_else_moved_is_looked_at_and_the_fork_refused(
    opened: Any, postgres_database: str, looks: list[str]
) -> None:
    with opened(postgres_database) as inner, single(postgres_database) as other:
        set_up(postgres_database)
        saver = CachedHistorySaver(inner)
        head = put(saver)
        moved = put(other, head)
        before = rows(postgres_database)
        looks.clear()
        with pytest.raises(NonHeadWriteError) as caught:
            put(saver, head)
        assert (caught.value.reason, caught.value.head_id) == ("fork", moved)
        with pytest.raises(NonHeadWriteError):
            saver.put_writes(config(head), [("log", ["late"])], "task")
        assert rows(postgres_database) == before
        assert looks == ["look", "look"]
        put(saver, moved)


@every_kind
def test_a_write_of_somebody_else_on_the_head_is_looked_at_and_refused(
    opened: Any, postgres_database: str, looks: list[str]
) -> None:
    with read_head(opened, postgres_database) as (saver, other, head):
        other.put_writes(config(head), [("log", ["theirs"])], "their task")
        looks.clear()
        with pytest.raises(NonHeadWriteError) as caught:
            saver.put_writes(config(head), [("log", ["mine"])], "my task")
        assert caught.value.reason == "foreign writes"
        with pytest.raises(NonHeadWriteError):
            put(saver, head)
        assert looks == ["look", "look"]


ODD = ['"', "\\", "{a,b}", "NULL", "a\x1fb", "ü", "%s $1", " ", "'; --"]


@every_kind
def test_names_are_taken_as_they_are(opened: Any, postgres_database: str, looks: list[str]) -> None:
    set_up(postgres_database)
    for odd in ODD:
        with opened(postgres_database) as inner, single(postgres_database) as other:
            assert_taken_as_it_is(odd, CachedHistorySaver(inner), other, looks)


def assert_taken_as_it_is(odd: str, saver: Any, other: Any, looks: list[str]) -> None:
    """Own writes under the name are expected, and one of somebody else is not."""
    metadata: Any = {"counters_since_delta_snapshot": {odd: (1, 1)}}
    head: str | None = None

    def at(cid: str | None) -> Any:
        return {"configurable": {"thread_id": odd, "checkpoint_ns": "", "checkpoint_id": cid}}

    for turn in range(3):
        made = checkpoint()
        saver.put(at(head), made, metadata, {})
        head = made["id"]
        saver.get_tuple(at(None))
        if turn == 1:
            looks.clear()
        for task in (f"{odd} {turn}", "other"):
            saver.put_writes(at(head), [(odd, 1), (odd, 2)], task)
    assert looks == []
    other.put_writes(at(head), [(odd, 1)], odd)
    with pytest.raises(NonHeadWriteError, match="foreign"):
        saver.put_writes(at(head), [(odd, 3)], "mine")
    with pytest.raises(NonHeadWriteError, match="foreign"):
        saver.put(at(head), checkpoint(), metadata, {})


@every_kind
def test_one_write_more_than_the_own_ones_of_a_task_is_seen(
    opened: Any, postgres_database: str, looks: list[str]
) -> None:
    with read_head(opened, postgres_database) as (saver, other, head):
        saver.put_writes(config(head), [("log", ["mine"])], "task")
        other.put_writes(config(head), [("log", ["mine"]), ("log", ["more"])], "task")
        looks.clear()
        with pytest.raises(NonHeadWriteError) as caught:
            put(saver, head)
        assert caught.value.reason == "foreign writes"
        assert looks == ["look"]


@pytest.mark.parametrize(("opened", "ahead"), [*zip(KINDS, [True] * 3 + [False] * 2, strict=True)])
def test_statements_that_are_prepared_are_sent_ahead_without_a_cursor(
    opened: Any, ahead: bool, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bool] = []

    def noting(*given: Any) -> bool:
        sent.append(sent_ahead(*given))
        return sent[-1]

    monkeypatch.setattr(fence_postgres, "sent_ahead", noting)
    with opened(postgres_database) as inner:
        set_up(postgres_database)
        saver = CachedHistorySaver(inner)
        head = put(saver)
        for turn in range(9):
            saver.put_writes(config(head), [("log", [turn])], f"task {turn}")
            head = put(saver, head)
    assert len(sent) == 18
    assert sent[-2:] == [ahead, ahead]


def test_without_what_psycopg_keeps_to_itself_a_cursor_takes_them(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with single(postgres_database) as inner:
        set_up(postgres_database)
        saver = CachedHistorySaver(inner)
        head = put(saver, put(saver))
        monkeypatch.delattr(PrepareManager, "get")
        monkeypatch.setattr(
            psycopg.Cursor, "_get_prepared", lambda *_: (Prepare.NO, b""), raising=True
        )
        head = put(saver, head)
        assert inner.get_tuple(config()).checkpoint["id"] == head


def test_a_harmless_write_of_somebody_else_is_looked_at_and_passes(
    postgres_database: str, looks: list[str]
) -> None:
    with single(postgres_database) as inner, single(postgres_database) as other:
        set_up(postgres_database)
        saver = CachedHistorySaver(inner)
        head = put(saver)
        saver.get_tuple(config())
        other.put_writes(config(head), [("branch:to:next", None)], "their task")
        looks.clear()
        put(saver, head)
        assert looks == ["look"]


def test_a_taken_slot_is_seen_though_nobody_read_it(postgres_database: str) -> None:
    with single(postgres_database) as inner, single(postgres_database) as other:
        set_up(postgres_database)
        saver = CachedHistorySaver(inner)
        head = Context().run(put, saver)
        other.put_writes(config(head), [("x", 1)], "task")
        mine = config(head), [("log", ["mine"])], "task"
        with pytest.raises(WriteSlotTakenError):
            Context().run(saver.put_writes, *mine)  # a caller that has read nothing


def test_an_error_of_the_database_is_not_taken_for_a_surprise(
    postgres_database: str, looks: list[str]
) -> None:
    with single(postgres_database) as inner:
        set_up(postgres_database)
        saver = CachedHistorySaver(inner)
        head = put(saver)
        inner.conn.execute("ALTER TABLE checkpoints ADD CHECK ((metadata->>'n')::int IS NULL)")
        looks.clear()
        with pytest.raises(InvalidTextRepresentation, match="not a number"):
            saver.put(config(head), checkpoint(), {**DELTA, "n": "not a number"}, {})
        assert looks == []
        put(saver, head)


def test_the_statement_that_failed_is_reported_not_those_behind_it() -> None:
    def leave() -> None:
        try:
            raise CheckViolation("the cause")
        finally:
            raise PipelineAborted("skipped")

    with pytest.raises(CheckViolation, match="the cause"), _unmasked():
        leave()
    with pytest.raises(PipelineAborted), _unmasked():
        raise PipelineAborted("nothing before it")


def rows(uri: str) -> list[Any]:
    with psycopg.connect(uri) as connection:
        return connection.execute(
            "SELECT checkpoint_id, NULL FROM checkpoints UNION ALL "
            "SELECT checkpoint_id, task_id FROM checkpoint_writes ORDER BY 1, 2"
        ).fetchall()
