"""Crashes inside fenced writes, and pools too small for what is asked of them."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from guard.matrix import FULL
from guard.processes import Report, audit, workers
from guard.racer import Spec, graph_of, turn_of
from guard.scenarios.kinds import say
from guard.storage import Place, Postgres
from support.savers import CONNECTION

TASKS = 20
CASES = ("postgres", "postgres-pool", "async-postgres", "sqlite", "async-sqlite")


DEATHS = [
    (*where, durability)
    for where in product(("put", "put_writes"), ("before", "after"))
    for durability in ("sync", "exit")
]
# All deaths, each in every durability, on some saver; all of them on every saver in the full run
CRASHES = [
    (case, *death)
    for number, case in enumerate(CASES)
    for place, death in enumerate(DEATHS)
    if FULL or (place - number) % 4 == 0
]


def crash_and_go_on(place: Place, spec: Spec, method: str, when: str) -> Report:
    """Two turns by one process, a crash in the third, two more turns by a second process."""
    name = f"a{method}" if spec.case.startswith("async") else method
    with workers(spec, spec) as (crashing, other):
        crashing.tell("1-before", "2-before")
        answers = crashing.answer()
        crashing.tell("3-crashing", death=(name, when))
        assert crashing.ended() == -signal.SIGKILL
        other.tell("4-after", "5-after")
        answers += other.answer()
    return audit(place, answers)


@pytest.mark.parametrize(("case", "method", "when", "durability"), CRASHES)
def test_a_thread_goes_on_after_a_crash_inside_a_write(
    case: str, method: str, when: str, durability: Any, place_of: Any
) -> None:
    place, spec = place_of(case, durability)
    report = crash_and_go_on(place, spec, method, when)
    assert report.errors == []
    assert report.refused == []
    assert not report.findings
    assert report.disagreeing == []
    landed = [text for text in report.log if "crashing" not in text]
    whole = ("1-before", "2-before", "4-after", "5-after")
    assert landed == [text for name in whole for text in turn_of(name)]


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def assert_each_thread_has_its_turns(uri: str, accepted: dict[str, list[str]]) -> None:
    place = Postgres.existing(uri)
    with place.looking() as looking:
        for name, turns in accepted.items():
            log = graph_of(looking).get_state(thread(name)).values["log"]
            assert [text for text in log if ":" not in text and text in turns] == turns


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_threads_of_a_pool_of_one_connection_do_not_deadlock(
    shared_postgres: str, durability: Any
) -> None:
    Postgres(shared_postgres)
    pool: ConnectionPool[Any] = ConnectionPool(
        shared_postgres, kwargs=CONNECTION, min_size=1, max_size=1, open=False
    )

    with pool, ThreadPoolExecutor(TASKS) as executor:
        graph = graph_of(CachedHistorySaver(PostgresSaver(pool)))

        def turns(number: int) -> list[str]:
            accepted = []
            for turn in range(2):
                text = f"{number}-{turn}"
                graph.invoke(say(text), thread(str(number)), durability=durability)
                accepted.append(text)
            return accepted

        done = dict(zip(map(str, range(TASKS)), executor.map(turns, range(TASKS)), strict=True))
    assert_each_thread_has_its_turns(shared_postgres, done)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_tasks_of_a_pool_of_one_connection_do_not_deadlock(
    shared_postgres: str, durability: Any
) -> None:
    Postgres(shared_postgres)
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        shared_postgres, kwargs=CONNECTION, min_size=1, max_size=1, open=False
    )
    async with pool:
        graph = graph_of(CachedHistorySaver(AsyncPostgresSaver(pool)))

        async def turns(number: int) -> list[str]:
            accepted = []
            for turn in range(2):
                text = f"{number}-{turn}"
                await graph.ainvoke(say(text), thread(str(number)), durability=durability)
                accepted.append(text)
            return accepted

        done = await asyncio.gather(*map(turns, range(TASKS)))
    assert_each_thread_has_its_turns(
        shared_postgres, {str(number): texts for number, texts in enumerate(done)}
    )


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_tasks_on_one_thread_and_one_connection_do_not_deadlock(
    shared_postgres: str, durability: Any
) -> None:
    Postgres(shared_postgres)
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        shared_postgres, kwargs=CONNECTION, min_size=1, max_size=1, open=False
    )
    async with pool:
        graph = graph_of(CachedHistorySaver(AsyncPostgresSaver(pool)))

        async def turn(number: int) -> dict[str, Any]:
            text = f"{number}-turn"
            try:
                result = await graph.ainvoke(say(text), thread("thread"), durability=durability)
            except NonHeadWriteError as error:
                return {"text": text, "refused": error.reason}
            return {"text": text, "log": result["log"], "ref": result["ref"]}

        answers = await asyncio.gather(*map(turn, range(TASKS)))
    report = audit(Postgres.existing(shared_postgres), answers)
    assert report.problems() == []
    assert len(report.accepted) >= 1
