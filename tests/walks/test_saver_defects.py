"""The savers' defects as the registry tells them: probes agree with real databases."""

from __future__ import annotations

import sqlite3
import time
import warnings
from contextlib import closing
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row

from deerflow_saver import CachedHistorySaver, UnsupportedSaverError, fixes
from deerflow_saver.fixes import Presence
from deerflow_saver.fixes._saver_defects import SAVER_DEFECTS
from deerflow_saver.walks import habits
from support.savers import CASES, SaverCase, Storage, every_case
from walks.lines import Face, config

every_sql_case = pytest.mark.parametrize("case", [c for c in CASES if c.name != "memory"], ids=str)
every_postgres = pytest.mark.parametrize(
    "case", [c for c in CASES if "postgres" in c.name], ids=str
)
every_defect = pytest.mark.parametrize("defect", SAVER_DEFECTS, ids=lambda defect: defect.slug)


def test_a_defect_of_several_savers_is_told_of_those_that_have_it() -> None:
    (row,) = fixes.status(["parent-sorts-after-child"])
    having = {
        family
        for family in ("sqlite", "postgres")
        for cls in habits.installed(family)
        if habits.loses_late_parents(cls).wrong
    }
    if having:
        assert set(row.savers) == having
    else:
        assert row.presence is Presence.ABSENT


@every_defect
def test_a_probe_sees_something_and_changes_nothing(defect: fixes.Defect) -> None:
    before = {name: vars(cls).copy() for name, cls in _classes().items()}
    fixes.status([defect.slug])  # what it imports is not what it costs
    began = time.perf_counter()
    (row,) = fixes.status([defect.slug])
    seconds = time.perf_counter() - began
    print(f"{defect.slug}: {seconds * 1e3:.1f} ms, {row.evidence}")  # noqa: T201 - told, not judged
    assert row.presence in {Presence.PRESENT, Presence.ABSENT}
    assert row.evidence
    assert row.advice == defect.remedy.text
    assert {name: vars(cls).copy() for name, cls in _classes().items()} == before


def _classes() -> dict[str, type]:
    return {cls.__name__: cls for cls in habits.installed("memory", "sqlite", "postgres")}


def test_probes_run_inside_a_running_loop() -> None:
    async def inside() -> list[Presence]:
        return [row.presence for row in fixes.status([defect.slug for defect in SAVER_DEFECTS])]

    import asyncio

    assert set(asyncio.run(inside())) <= {Presence.PRESENT, Presence.ABSENT}


def test_a_class_that_cannot_be_probed_is_looked_after() -> None:
    class Strange(InMemorySaver):
        def __init__(self, *_: Any) -> None:
            raise LookupError

    assert habits.habits_of(Strange).late_parents
    assert habits.keeps_lock(Strange)


# -- real databases ----------------------------------------------------------------------------


@every_sql_case
async def test_the_probe_of_late_parents_agrees_with_the_database(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, raw)
        await face.store([("3", None), ("1", "3"), ("2", "1")])
        wrong = await face.history("2") != await face.right("2")
        assert habits.loses_late_parents(type(raw)).wrong is wrong


@every_case
async def test_the_probe_of_the_order_agrees_with_the_database(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, raw)
        await face.put("1", None)
        await face.write("1", "second", task="a", path="~pull, 2")
        await face.write("1", "first", task="b", path="~pull, 1")
        await face.put("2", "1")
        wrong = await face.values("2") != ["first", "second"]
        assert habits.loses_order(type(raw)).wrong is wrong


@every_postgres
async def test_the_probe_of_plain_seeds_agrees_with_the_database(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, raw)
        await face.store([("1", None)])
        await face.put("2", "1", ["plain"])
        await face.put("3", "2")
        wrong = await face.values("3") != [["plain"]]
        assert habits.skips_plain_seed(type(raw)).wrong is wrong


@every_postgres
async def test_the_probe_of_none_seeds_agrees_with_the_database(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, raw)
        await face.put("1", None, ["older"])
        await face.put_none("2", "1")
        await face.write("2", "after")
        await face.put("3", "2")
        wrong = ["older"] in await face.values("3")
        assert habits.skips_none_seed(type(raw)).wrong is wrong


@every_postgres
async def test_the_probe_of_the_first_page_agrees_with_the_database(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, raw)
        await face.store([("00000", None), ("00001", "00000")])
        for number in range(2, 1030):
            await face.put(f"{number:05}", f"{number - 1:05}")
        wrong = await face.values("00001") != ["00000"]
        assert habits.loses_second_page(type(raw)).wrong is wrong


# -- what nothing can be done about, or is refused ----------------------------------------------


def test_a_shallow_saver_keeps_no_parents_and_is_refused(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True, row_factory=dict_row) as connection:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raw: Any = ShallowPostgresSaver(connection)
        raw.setup()
        for cid, parent in (("1", None), ("2", "1")):
            checkpoint = {**empty_checkpoint(), "id": cid, "channel_versions": {"log": cid}}
            raw.put(config(parent), checkpoint, {"step": 1}, {"log": cid})
            raw.put_writes(config(cid), [("log", [cid])], "task")
        assert raw.get_delta_channel_history(config=config("2"), channels=["log"]) == {
            "log": {"writes": []}
        }
        with pytest.raises(UnsupportedSaverError, match="keeps only the newest checkpoint"):
            CachedHistorySaver(raw)
    (row,) = fixes.status(["shallow-saver"])
    assert (row.presence, row.remedy) == (Presence.PRESENT, "guard")


def test_rows_of_an_old_release_without_a_path_are_reported_with_advice() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection, connection:
        raw = SqliteSaver(connection)
        face = CachedHistorySaver(raw, guard="off")
        checkpoint: Any = {**empty_checkpoint(), "id": "1"}
        face.put(config(), checkpoint, {"step": 1}, {})
        face.put_writes(config("1"), [("log", ["second"])], "a")  # by the old release
        face.put_writes(config("1"), [("log", ["first"])], "b", "~pull, 1")  # after the update
        face.put(config("1"), {**checkpoint, "id": "2"}, {"step": 2}, {})
        asked: Any = {"config": config("2"), "channels": ["log"]}
        histories = [
            saver.get_delta_channel_history(**asked)["log"]["writes"]
            for saver in (raw, face, CachedHistorySaver(raw, guard="off"))
        ]
        assert [[value for _, _, value in writes] for writes in histories] == [
            [["second"], ["first"]]
        ] * 3
        (row,) = fixes.status(["rows-without-task-path"])
        assert (row.presence, row.remedy) == (Presence.PRESENT, "advice")
        if not habits.loses_order(SqliteSaver).wrong:  # the column is there: the advice's query
            query = row.advice.partition("concerned: ")[2].partition(". Postgres")[0]
            assert connection.execute(query).fetchall() == [("thread",)]
    connection.close()
