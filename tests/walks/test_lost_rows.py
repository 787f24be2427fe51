"""Walks that lose rows, on every saver; the reference is the base class's walk on the raw one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver import CachedHistorySaver, fixes
from deerflow_saver.walks import asking, habits, walker
from support.conversation import conversation, question, thread
from support.savers import CASES, SaverCase, Storage, every_case
from support.upstream import without_order
from walks.lines import Face, values

every_postgres = pytest.mark.parametrize(
    "case", [c for c in CASES if "postgres" in c.name], ids=str
)
every_sqlite = pytest.mark.parametrize("case", [c for c in CASES if "sqlite" in c.name], ids=str)

# Ids of a host whose clock is ahead, then of one that is behind and continues the line
AHEAD = [f"1ef9-{number:03}" for number in range(6)]
BEHIND = [f"1ef2-{number:03}" for number in range(4)]
IDS = [*AHEAD, *BEHIND]
LINE = [(cid, IDS[number - 1] if number else None) for number, cid in enumerate(IDS)]


@pytest.fixture(autouse=True)
def _memory_walks_rightly() -> Iterator[None]:
    """The memory saver's own defect has its own runtime fix."""
    fixes.apply(["memory-history-folding"])
    yield
    fixes.revert(["memory-history-folding"])


def wrapped(case: SaverCase, raw: Any) -> Face:
    """A wrapper that knows nothing yet."""
    return Face(case, CachedHistorySaver(raw, guard="off"))


@every_case
async def test_no_ancestor_is_lost_whose_id_sorts_after_its_child(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        await Face(case, raw).store(LINE)
        for number, cid in enumerate(IDS):
            face = wrapped(case, raw)
            assert await face.history(cid) == await Face(case, raw).right(cid)
            assert await face.values(cid) == IDS[:number]


@every_case
async def test_the_thread_reads_alike_while_it_is_written_by_hosts_with_differing_clocks(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        face = wrapped(case, raw)
        for number, (cid, parent) in enumerate(LINE):
            await face.put(cid, parent)
            assert await face.values(cid) == IDS[:number]
            await face.write(cid, cid)
        for number, cid in enumerate(IDS):
            assert await face.values(cid) == IDS[:number]


@every_case
async def test_a_head_found_without_an_id_is_walked_to_its_root(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        await Face(case, raw).store(LINE)
        await Face(case, raw).store([("1ef5", BEHIND[-1]), ("1ef99", "1ef5")])
        for ask_row in (False, True):
            face = wrapped(case, raw)
            if ask_row:
                row = await face.call("get_tuple", {"configurable": {"thread_id": "thread"}})
                assert row.config["configurable"]["checkpoint_id"] == "1ef99"
            assert await face.values("1ef99" if ask_row else None) == [*IDS, "1ef5"]


@every_case
async def test_a_seed_ends_the_walk_of_its_channel_alone(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await plain.store(LINE[:-2])
        for cid, parent in LINE[-2:]:
            await plain.put(cid, parent, _DeltaSnapshot(["snapshot"]))
        face = wrapped(case, raw)
        channels = ("log", "other")
        answer = await face.history(IDS[-1], channels)
        assert answer == await plain.right(IDS[-1], channels)
        assert answer["log"]["seed"] == _DeltaSnapshot(["snapshot"])
        assert answer["other"] == {"writes": []}


@every_postgres
async def test_a_target_beyond_the_first_page_is_read_whole(
    case: SaverCase, storage: Storage
) -> None:
    ids = [f"{number:05}" for number in range(1040)]
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        for number, cid in enumerate(ids):
            await plain.put(cid, ids[number - 1] if number else None)
            if number < 12:
                await plain.write(cid, cid)
        for cid in (ids[1], ids[10], ids[16], ids[500]):
            face = wrapped(case, raw)
            assert await face.history(cid) == await plain.right(cid)
            assert await face.values(cid) == ids[:12][: ids.index(cid)]


@every_case
@pytest.mark.parametrize("value", [["plain"], "text", 7, 0.5, {"a": 1}], ids=str)
async def test_a_plain_value_from_before_the_channel_was_delta_is_the_seed(
    case: SaverCase, storage: Storage, value: Any
) -> None:
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await plain.store([("1", None)])
        await plain.put("2", "1", value)
        await plain.write("2", "after")
        await plain.put("3", "2")
        await plain.write("3", "later")
        await plain.put("4", "3")
        face = wrapped(case, raw)
        assert await face.history("4") == await plain.right("4")
        assert await face.values("4") == [value, "after", "later"]


@every_case
@pytest.mark.parametrize("older", [["plain"], 7, _DeltaSnapshot(["snapshot"]), None], ids=str)
async def test_a_none_from_before_the_channel_was_delta_is_not_walked_past(
    case: SaverCase, storage: Storage, older: Any
) -> None:
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await plain.put("1", None, older)
        await plain.write("1", "before")
        await plain.put_none("2", "1")
        await plain.write("2", "after")
        await plain.put("3", "2")
        await plain.write("3", "later")
        await plain.put("4", "3")
        face = wrapped(case, raw)
        for _ in range(3):  # cold, proven, warm
            for cid in "432":
                history = await face.history(cid)
                if isinstance(older, _DeltaSnapshot) and "postgres" in case.name:
                    continue  # what a walk to a snapshot passed is not asked about
                assert reloaded(history) == reloaded(await plain.right(cid))


def reloaded(history: Any) -> list[Any]:
    """What a reload applies: a None is as good as no seed."""
    return [value for value in values(history["log"]) if value is not None]


@every_postgres
async def test_a_none_is_seen_while_the_thread_is_written_through_the_wrapper(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        face = wrapped(case, raw)
        await face.put("1", None, 7)
        await face.history("1")  # from now on it is known as a delta channel
        await face.put_none("2", "1")
        await face.write("2", "after")
        await face.put("3", "2")
        for _ in range(3):
            assert await face.values("3") == [None, "after"]
            assert await wrapped(case, raw).values("3") == [None, "after"]


@every_postgres
@pytest.mark.parametrize("none", [True, False], ids=["None", "no None"])
async def test_whether_a_none_is_stored_is_asked_and_answered_once(
    case: SaverCase, storage: Storage, none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []

    def ask(saver: Any, statement: Any) -> Any:
        found = asking.ask(saver, statement)
        answers.append(bool(found))
        return found

    async def aask(saver: Any, statement: Any) -> Any:
        found = await asking.aask(saver, statement)
        answers.append(bool(found))
        return found

    monkeypatch.setattr(walker, "ask", ask)
    monkeypatch.setattr(walker, "aask", aask)
    async with case.aopen(storage) as raw:
        if not habits.skips_none_seed(type(raw)).wrong:
            pytest.skip("this release does not walk past it")
        plain = Face(case, raw)
        await plain.put("1", None, ["plain"])
        await (plain.put_none("2", "1") if none else plain.put("2", "1"))
        await plain.put("3", "2")
        face = wrapped(case, raw)
        face.saver._self_core.shared.track(["log"])
        await face.call("get_tuple", {"configurable": {"thread_id": "thread"}})
        assert await face.values("3") == [None if none else ["plain"]]
        assert answers == [none]


@every_postgres
async def test_a_saver_that_cannot_be_asked_is_walked_and_said_so_once(
    case: SaverCase,
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ask(*_: Any) -> Any:
        raise PermissionError("no right to look")

    async def aask(*_: Any) -> Any:
        ask()

    monkeypatch.setattr(walker, "ask", ask)
    monkeypatch.setattr(walker, "aask", aask)
    caplog.set_level("DEBUG", "deerflow_saver")
    async with case.aopen(storage) as raw:
        if not habits.skips_none_seed(type(raw)).wrong:
            pytest.skip("nothing is asked of this release")
        plain = Face(case, raw)
        await plain.put("1", None, ["plain"])
        await plain.put_none("2", "1")
        await plain.put("3", "2")
        face = wrapped(case, raw)
        face.saver._self_core.shared.track(["log"])
        for _ in range(2):
            assert await face.values("3") == [None]
            face.saver.purge_thread("thread")
    said = [record for record in caplog.records if record.name == "deerflow_saver"]
    assert [record.levelname for record in said] == ["WARNING", "DEBUG"]
    text = said[0].getMessage()
    assert type(raw).__name__ in text
    assert "thread 'thread'" in text
    assert "PermissionError: no right to look" in text


def test_no_none_is_asked_for_where_a_head_was_delta_from_its_first_step(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ask(saver: Any, statement: Any) -> Any:
        asked.append(statement.values.get("nullable"))
        return asking.ask(saver, statement)

    monkeypatch.setattr(walker, "ask", ask)
    with PostgresSaver.from_conn_string(postgres_database) as raw:
        raw.setup()
        conversation(raw).invoke(question(0), thread())
        saver = CachedHistorySaver(raw)
        values = conversation(saver).get_state(thread()).values
        assert without_order(values) == without_order(conversation(raw).get_state(thread()).values)
        assert saver.cache_info().walks == 1
        assert not any(asked)


async def limit_variables(raw: Any, case: SaverCase, number: int) -> None:
    limit = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    if case.kind == "sync":
        raw.conn.setlimit(limit, number)
    else:
        await raw.conn._execute(raw.conn._conn.setlimit, limit, number)


@every_sqlite
@pytest.mark.parametrize("length", [10, 45, 70])
async def test_more_ancestors_than_sqlite_binds_variables_are_read(
    case: SaverCase, storage: Storage, length: int
) -> None:
    ids = [f"{number:03}" for number in range(length)]
    channels = ("log", "a", "b", "c", "d")
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await plain.store(
            [(cid, ids[number - 1] if number else None) for number, cid in enumerate(ids)]
        )
        await limit_variables(raw, case, 60)
        face = wrapped(case, raw)
        assert await face.history(ids[-1], channels) == await plain.right(ids[-1], channels)
        assert values((await face.history(ids[-1], channels))["log"]) == ids[:-1]
        if length > 10:
            with pytest.raises(sqlite3.OperationalError, match="too many SQL variables"):
                await plain.history(ids[-1], channels)


@every_sqlite
@pytest.mark.parametrize("variables", [3, 32766])
async def test_a_loop_of_parents_ends_the_walk(
    case: SaverCase, storage: Storage, variables: int
) -> None:
    """`put` of a stored id under its own descendant makes one."""
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await plain.store([("1", None), ("2", "1"), ("3", "2")])
        await plain.put("1", "3")
        await limit_variables(raw, case, variables)
        assert await wrapped(case, raw).values("3") == ["1", "2"]


@every_sqlite
async def test_another_error_of_the_database_is_raised_as_it_is(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        await Face(case, raw).store(LINE)
        with closing(sqlite3.connect(storage.sqlite_path)) as connection, connection:
            connection.execute("ALTER TABLE writes RENAME TO elsewhere")
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await wrapped(case, raw).history(IDS[-1])


@every_case
async def test_switched_off_the_wrapper_answers_as_the_saver_does(
    case: SaverCase, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "off")
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await plain.store(LINE)
        for cid in IDS:
            assert await wrapped(case, raw).history(cid) == await plain.history(cid)


@every_postgres
async def test_a_head_costs_no_statement_more(
    case: SaverCase, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    for name in ("ask", "aask"):
        real = getattr(walker, name)

        def noted(saver: Any, statement: Any, real: Any = real) -> Any:
            asked.append(statement.sql)
            return real(saver, statement)

        monkeypatch.setattr(walker, name, noted)
    async with case.aopen(storage) as raw:
        await Face(case, raw).store(LINE[:6])
        face = wrapped(case, raw)
        face.saver._self_core.shared.track(["log"])
        await face.call("get_tuple", {"configurable": {"thread_id": "thread"}})
        assert await face.values(IDS[5]) == IDS[:5]
        # Releases that also miss plain values, or the writes' order, are asked about those
        assert not [sql for sql in asked if "RECURSIVE" in sql or "OFFSET" in sql]
