"""Locks that threads and tasks share, and fences that make look and write one step."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from deerflow_saver import CachedHistorySaver, NonHeadWriteError, WriteSlotTakenError
from deerflow_saver.guard.locks import KeyedLocks, locks_of
from guard.bare import DELTA, aput, checkpoint, config, put
from support.savers import (
    CONNECTION,
    SaverCase,
    Storage,
    every_async_case,
    every_case,
    every_sync_case,
)

# -- locks -----------------------------------------------------------------------------------


def test_threads_take_turns() -> None:
    locks, inside, most = KeyedLocks(), [0], [0]

    def work(_: int) -> None:
        for _ in range(200):
            locks.acquire("key")
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            inside[0] -= 1
            locks.release("key")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert most == [1]
    assert len(locks) == 0


def test_tasks_of_several_loops_and_threads_take_turns() -> None:
    locks, order = KeyedLocks(), []

    async def tasks() -> None:
        async def one() -> None:
            await locks.aacquire("key")
            order.append("in")
            await asyncio.sleep(0)
            order.append("out")
            locks.release("key")

        await asyncio.gather(*(one() for _ in range(50)))

    def blocking() -> None:
        for _ in range(50):
            locks.acquire("key")
            order.append("in")
            order.append("out")
            locks.release("key")

    jobs = [lambda: asyncio.run(tasks()), lambda: asyncio.run(tasks()), blocking]
    with ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()
    assert order == ["in", "out"] * 150
    assert len(locks) == 0


async def test_a_task_that_waits_for_a_thread_does_not_block_the_loop() -> None:
    locks = KeyedLocks()
    locks.acquire("key")
    waiting = asyncio.create_task(locks.aacquire("key"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.to_thread(locks.release, "key")
    assert await waiting
    locks.release("key")


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_cancelled_waiter_passes_the_lock_on(handed_over: bool) -> None:
    locks = KeyedLocks()
    await locks.aacquire("key")
    first = asyncio.create_task(locks.aacquire("key"))
    second = asyncio.create_task(locks.aacquire("key"))
    await asyncio.sleep(0)
    if handed_over:
        locks.release("key")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not handed_over:
        locks.release("key")
    assert await second
    locks.release("key")
    assert len(locks) == 0


async def test_a_call_that_blocks_the_holders_loop_goes_without_the_lock() -> None:
    locks = KeyedLocks()
    await locks.aacquire("key")
    assert not locks.acquire("key")
    locks.release("key")
    assert len(locks) == 0


def test_a_waiter_whose_loop_is_gone_is_passed_over() -> None:
    locks = KeyedLocks()
    locks.acquire("key")
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(locks.aacquire("key"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    locks.release("key")
    assert locks.acquire("key")
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    del waiting  # the task is thrown away; the lock is not its to give back
    gc.collect()
    assert len(locks) == 1
    locks.release("key")
    assert len(locks) == 0


def test_wrappers_of_one_saver_share_its_locks() -> None:
    saver = InMemorySaver()
    assert locks_of(saver) is locks_of(saver)
    assert locks_of(saver) is not locks_of(InMemorySaver())


# -- fences ----------------------------------------------------------------------------------


@every_sync_case
def test_a_fork_is_refused_and_the_saver_goes_on(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as inner:
        saver = CachedHistorySaver(inner)
        first = put(saver)
        second = put(saver, first)
        with pytest.raises(NonHeadWriteError):
            put(saver, first)
        with pytest.raises(NonHeadWriteError):
            saver.put_writes(config(first), [("log", ["x"])], "task")
        saver.put_writes(config(first), [("other", 1)], "task")
        third = put(saver, second)
        assert [row.checkpoint["id"] for row in inner.list(config())] == [third, second, first]


@every_async_case
async def test_a_fork_is_refused_and_the_async_saver_goes_on(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as inner:
        saver = CachedHistorySaver(inner)
        first = await aput(saver)
        second = await aput(saver, first)
        with pytest.raises(NonHeadWriteError):
            await aput(saver, first)
        with pytest.raises(NonHeadWriteError):
            await saver.aput_writes(config(first), [("log", ["x"])], "task")
        third = await aput(saver, second)
        ids = [row.checkpoint["id"] async for row in inner.alist(config())]
        assert ids == [third, second, first]


@every_case
async def test_the_guard_tells_how_far_its_fence_reaches(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as inner:
        guard = CachedHistorySaver(inner).guard
        assert guard is not None
        assert guard.fence == ("process" if case.name == "memory" else "transaction")


@every_async_case
async def test_the_sync_face_of_an_async_saver_is_fenced_on_its_loop(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as inner:
        saver = CachedHistorySaver(inner)
        first = await asyncio.to_thread(put, saver)
        await asyncio.to_thread(put, saver, first)
        with pytest.raises(NonHeadWriteError):
            await asyncio.to_thread(put, saver, first)


@every_sync_case
def test_of_two_wrappers_that_put_on_one_head_one_is_refused(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as one, case.open(storage) as other:
        savers = [CachedHistorySaver(one), CachedHistorySaver(one if one is other else other)]
        head = put(savers[0])
        for _ in range(15):
            outcomes: list[Any] = []
            start = threading.Barrier(2)

            def race(
                saver: Any, head: str = head, outcomes: Any = outcomes, start: Any = start
            ) -> None:
                start.wait()
                try:
                    outcomes.append(put(saver, head))
                except NonHeadWriteError:
                    outcomes.append(None)

            threads = [threading.Thread(target=race, args=(saver,)) for saver in savers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if case.name != "memory":  # two savers on the same dictionaries know no other fence
                assert sum(outcome is not None for outcome in outcomes) == 1
            head = max(outcome for outcome in outcomes if outcome)


@every_sync_case
def test_of_two_callers_that_loaded_one_head_the_second_to_write_is_refused(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as inner, ThreadPoolExecutor(1) as elsewhere:
        saver = CachedHistorySaver(inner)
        head = put(saver)
        saver.get_tuple(config())
        elsewhere.submit(saver.get_tuple, config()).result()
        saver.put_writes(config(head), [("log", ["mine"])], "one")
        with pytest.raises(NonHeadWriteError) as caught:
            elsewhere.submit(saver.put_writes, config(head), [("log", ["theirs"])], "two").result()
        assert caught.value.reason == "foreign writes"
        with pytest.raises(NonHeadWriteError):
            elsewhere.submit(put, saver, head).result()
        put(saver, head)


@every_sync_case
def test_a_caller_that_loaded_anothers_writes_may_build_on_them(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as inner, ThreadPoolExecutor(1) as elsewhere:
        saver = CachedHistorySaver(inner)
        head = put(saver)
        saver.get_tuple(config())
        saver.put_writes(config(head), [("log", ["first"])], "one")
        elsewhere.submit(saver.get_tuple, config()).result()
        elsewhere.submit(put, saver, head).result()


@every_sync_case
def test_a_write_that_would_be_lost_is_refused_and_the_same_again_is_not(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as inner:
        saver = CachedHistorySaver(inner)
        head = put(saver)
        saver.put_writes(config(head), [("x", 1)], "task")
        with pytest.raises(WriteSlotTakenError) as caught:
            saver.put_writes(config(head), [("log", ["lost"])], "task")
        assert caught.value.channels == ("log",)
        saver.put_writes(config(head), [("log", ["kept"])], "another")
        saver.put_writes(config(head), [("log", ["kept"])], "another")


def test_a_tenants_saver_is_guarded_by_what_it_says_is_the_head() -> None:
    class Stranger(InMemorySaver):
        def get_tuple(self, config: Any) -> Any:
            return super().get_tuple(config)

    saver = CachedHistorySaver(Stranger())
    assert saver.guard is not None
    assert saver.guard.fence == "process"
    first = put(saver)
    put(saver, first)
    with pytest.raises(NonHeadWriteError):
        put(saver, first)


# -- transactions ------------------------------------------------------------------------------


def test_a_refusal_leaves_a_sqlite_connection_as_it_was(tmp_path: Any) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "db", check_same_thread=False)) as connection,
        connection,
    ):
        saver = CachedHistorySaver(SqliteSaver(connection))
        first = put(saver)
        put(saver, first)
        with pytest.raises(NonHeadWriteError):
            put(saver, first)
        assert not connection.in_transaction
        assert not saver.lock.locked()
    connection.close()


def test_a_write_joins_a_transaction_of_the_caller(tmp_path: Any) -> None:
    connection = sqlite3.connect(tmp_path / "db", check_same_thread=False)
    saver = CachedHistorySaver(SqliteSaver(connection))
    first = put(saver)
    connection.execute("CREATE TABLE mine (x)")
    connection.execute("INSERT INTO mine VALUES (1)")
    put(saver, first)
    with pytest.raises(NonHeadWriteError):
        put(saver, first)
    assert connection.execute("SELECT x FROM mine").fetchall() == [(1,)]
    connection.close()


def set_up(uri: str) -> None:
    """Make the tables; LangGraph's setup cannot do that in pipeline mode."""
    with PostgresSaver.from_conn_string(uri) as saver:
        saver.setup()


@pytest.mark.parametrize("pipeline", [False, True])
def test_a_refusal_leaves_a_postgres_connection_idle(
    postgres_database: str, pipeline: bool
) -> None:
    set_up(postgres_database)
    with PostgresSaver.from_conn_string(postgres_database, pipeline=pipeline) as inner:
        saver: Any = CachedHistorySaver(inner)
        first = put(saver)
        second = put(saver, first)
        with pytest.raises(NonHeadWriteError):
            put(saver, first)
        put(saver, second)
        if inner.pipe:
            inner.pipe.sync()
        assert saver.conn.info.transaction_status is TransactionStatus.IDLE
        assert not inner.lock.locked()


@pytest.mark.parametrize("pipeline", [False, True])
async def test_a_refusal_leaves_an_async_postgres_connection_idle(
    postgres_database: str, pipeline: bool
) -> None:
    set_up(postgres_database)
    opened = AsyncPostgresSaver.from_conn_string(postgres_database, pipeline=pipeline)
    async with opened as inner:
        saver: Any = CachedHistorySaver(inner)
        first = await aput(saver)
        second = await aput(saver, first)
        with pytest.raises(NonHeadWriteError):
            await aput(saver, first)
        await aput(saver, second)
        if inner.pipe:
            await inner.pipe.sync()
        assert saver.conn.info.transaction_status is TransactionStatus.IDLE
        assert not inner.lock.locked()


class Unstorable:
    """No serialiser takes it."""

    def __reduce__(self) -> Any:
        raise TypeError


@every_sync_case
def test_a_write_that_fails_half_way_stores_nothing_and_frees_the_thread(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as inner:
        saver: BaseCheckpointSaver[Any] = CachedHistorySaver(inner)  # type: ignore[assignment]
        first = put(saver)
        bad = {**checkpoint(), "channel_values": {"x": [1], "y": Unstorable()}}
        with pytest.raises(TypeError):
            saver.put(config(first), bad, DELTA, {"x": "1", "y": "1"})
        assert [row.checkpoint["id"] for row in inner.list(config())] == [first]
        put(saver, first)


def test_a_call_that_the_database_refuses_leaves_the_connection_usable(
    postgres_database: str,
) -> None:
    with PostgresSaver.from_conn_string(postgres_database) as inner:
        inner.setup()
        saver = CachedHistorySaver(inner)
        first = put(saver)
        inner.conn.execute("ALTER TABLE checkpoints ADD CHECK (metadata->>'bad' IS NULL)")
        with pytest.raises(psycopg.errors.CheckViolation):
            saver.put(config(first), checkpoint(), {**DELTA, "bad": "yes"}, {})
        put(saver, first)
        assert len(list(inner.list(config()))) == 2


_WAITS = (
    "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database "
    "WHERE datname = current_database() AND NOT granted"
)


async def test_a_cancelled_put_frees_the_thread(postgres_database: str) -> None:
    async with AsyncPostgresSaver.from_conn_string(postgres_database) as inner:
        await inner.setup()
        saver = CachedHistorySaver(inner)
        first = await aput(saver)
        with psycopg.connect(postgres_database) as other:
            other.execute("LOCK TABLE checkpoints IN ACCESS EXCLUSIVE MODE")
            waiting = asyncio.create_task(aput(saver, first))
            # Cancelled before its query waits, psycopg would find nothing to cancel in the server
            # and close the connection in the end, guard or no guard
            while not other.execute(_WAITS).fetchone():  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await aput(saver, first)


def test_a_pool_of_one_connection_serves_many_threads(postgres_database: str) -> None:
    pool: Any = ConnectionPool(
        postgres_database, kwargs=CONNECTION, min_size=1, max_size=1, open=False
    )
    with pool:
        inner = PostgresSaver(pool)
        inner.setup()
        saver = CachedHistorySaver(inner)

        def line(number: int) -> int:
            where = {"thread_id": f"t{number % 2}", "checkpoint_ns": str(number)}
            parent = None
            for _ in range(5):
                made = checkpoint()
                saver.put({"configurable": {**where, "checkpoint_id": parent}}, made, DELTA, {})
                parent = made["id"]
            return len(list(inner.list({"configurable": where})))

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(line, range(16))) == [5] * 16
