"""One holder per thread, whatever waits: OS threads, tasks, event loops, other processes."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from deerflow_saver.state import (
    Hold,
    PostgresThreadLock,
    ProcessThreadLock,
    ThreadLockLostError,
    ThreadLockReentryError,
    ThreadLockTimeoutError,
)
from deerflow_saver.state.locks import THREAD_LOCK, aholding, holding
from support.pooler import transaction_pooler
from support.savers import CASES, Storage

Make = Callable[[], ProcessThreadLock]


@pytest.fixture(params=["process", "postgres"])
def make(request: pytest.FixtureRequest) -> Make:
    """Locks of either kind; two of the kind that reaches further exclude each other."""
    if request.param == "process":
        return ProcessThreadLock
    uri = request.getfixturevalue("postgres_database")
    return lambda: PostgresThreadLock(uri)


def elsewhere(work: Callable[[], Any]) -> Any:
    """The result of `work` in an OS thread that inherits no context."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


async def apart(coroutine: Any) -> Any:
    """The result of a coroutine in a task that inherits no context."""
    return await asyncio.create_task(coroutine, context=contextvars.Context())


def take(lock: ProcessThreadLock, thread_id: str = "t", seconds: float | None = None) -> str:
    with lock.hold(thread_id, timeout=seconds) as hold:
        hold.check()
        return hold.thread_id


async def atake(lock: ProcessThreadLock, thread_id: str = "t", seconds: float | None = None) -> str:
    async with lock.ahold(thread_id, timeout=seconds) as hold:
        await hold.acheck()
        return hold.thread_id


def test_another_thread_waits_and_another_conversation_does_not(make: Make) -> None:
    lock = make()
    with lock.hold("t", owner="the worker") as hold:
        assert (hold.active, lock.holder("t")) == (True, hold)
        with pytest.raises(ThreadLockTimeoutError, match="held by the worker, for") as caught:
            elsewhere(lambda: take(lock, seconds=0.05))
        assert caught.value.thread_id == "t"
        assert elsewhere(lambda: take(lock, "u")) == "u"
    assert (hold.active, lock.holder("t"), len(lock)) == (False, None, 0)
    assert elsewhere(lambda: take(lock)) == "t"


async def test_tasks_wait_without_blocking_their_loop(make: Make) -> None:
    lock = make()
    async with lock.ahold("t", owner="first"):
        with pytest.raises(ThreadLockTimeoutError, match="held by first, for"):
            await apart(atake(lock, seconds=0.05))
        waiting = asyncio.create_task(atake(lock), context=contextvars.Context())
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting == "t"
    assert len(lock) == 0


@pytest.mark.parametrize("holder", ["thread", "loop"])
async def test_threads_and_tasks_of_other_loops_exclude_each_other(make: Make, holder: str) -> None:
    lock = make()
    taken, let_go = threading.Event(), threading.Event()

    def hold_in_a_thread() -> None:
        with lock.hold("t"):
            taken.set()
            let_go.wait()

    async def hold_in_a_loop() -> None:
        async with lock.ahold("t"):
            taken.set()
            await asyncio.to_thread(let_go.wait)

    work = hold_in_a_thread if holder == "thread" else lambda: asyncio.run(hold_in_a_loop())
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        await asyncio.to_thread(taken.wait)
        with pytest.raises(ThreadLockTimeoutError):
            await atake(lock, seconds=0.05)
        let_go.set()
        assert await atake(lock) == "t"
        done.result()


def test_counters_kept_under_the_lock_miss_no_step(make: Make) -> None:
    locks = [make()] * 2 if make is ProcessThreadLock else [make(), make()]
    count = 0

    def step(number: int) -> None:
        nonlocal count
        lock = locks[number % 2]
        if number % 3:
            with lock.hold("t", timeout=None):
                seen = count
                threading.Event().wait(0.001)
                count = seen + 1
        else:
            asyncio.run(astep(lock))

    async def astep(lock: ProcessThreadLock) -> None:
        nonlocal count
        async with lock.ahold("t", timeout=None):
            seen = count
            await asyncio.sleep(0.001)
            count = seen + 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(step, range(24)))
    assert count == 24


def test_a_holder_that_asks_again_is_told_instead_of_hanging(make: Make) -> None:
    lock = make()
    with lock.hold("t", owner="me"):
        with pytest.raises(ThreadLockReentryError, match="held by me, on whose behalf"):
            take(lock)
        inside = contextvars.copy_context()
        with pytest.raises(ThreadLockReentryError):  # as LangGraph runs a node
            elsewhere(lambda: inside.run(take, lock))
        with pytest.raises(ThreadLockReentryError):
            asyncio.run(atake(lock))
        assert take(lock, "u") == "u"
    assert take(lock) == "t"


async def test_a_task_is_told_too_and_so_is_what_blocks_its_loop(make: Make) -> None:
    lock = make()
    async with lock.ahold("t", owner="me"):
        for again in (atake(lock), asyncio.create_task(atake(lock))):
            with pytest.raises(ThreadLockReentryError):
                await again
        with pytest.raises(ThreadLockReentryError):
            take(lock)
        with pytest.raises(ThreadLockReentryError):  # it would block the loop of the holder
            contextvars.Context().run(take, lock)
    assert await atake(lock) == "t"


async def test_what_a_holder_started_may_take_the_lock_when_the_block_is_over(make: Make) -> None:
    lock = make()
    go = asyncio.Event()

    async def later() -> str:
        await go.wait()
        return await atake(lock)

    async with lock.ahold("t"):
        task = asyncio.create_task(later())
    go.set()
    assert await task == "t"


async def test_a_cancelled_waiter_leaves_the_queue_and_a_cancelled_holder_lets_go(
    make: Make,
) -> None:
    lock = make()
    entered = asyncio.Event()

    async def stay() -> None:
        async with lock.ahold("t", timeout=None):
            entered.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(stay())
    await entered.wait()
    waiter = asyncio.create_task(stay())
    await asyncio.sleep(0.01)
    for task in (waiter, holder):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await atake(lock) == "t"
    assert len(lock) == 0


def close_over(held: Callable[[], Any]) -> None:
    """Close a loop while one of its tasks stays in the middle of `held`."""
    loop = asyncio.new_event_loop()
    entered = asyncio.Event()

    async def stays() -> None:
        async with held():
            entered.set()
            await asyncio.Event().wait()

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(stays(), context=contextvars.Context())
        await entered.wait()
        return task

    task: Any = loop.run_until_complete(begin())
    loop.close()
    task._log_destroy_pending = False
    del task
    gc.collect()


def test_a_loop_that_is_closed_over_a_holder_leaves_the_lock_free(make: Make) -> None:
    lock = make()
    elsewhere(lambda: close_over(lambda: lock.ahold("t")))
    assert len(lock) == 0
    assert lock.holder("t") is None
    assert take(make(), seconds=30) == take(lock, seconds=0) == "t"


async def test_a_stream_that_is_closed_over_its_block_lets_go(make: Make) -> None:
    lock = make()

    async def stream() -> AsyncIterator[int]:
        async with lock.ahold("t"):
            yield 1

    items = stream()
    assert await anext(items) == 1
    await items.aclose()  # type: ignore[attr-defined]
    assert len(lock) == 0
    assert await apart(atake(make(), seconds=30)) == "t"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_block_that_fails_lets_go(make: Make, error: type[BaseException]) -> None:
    lock = make()
    with pytest.raises(error), lock.hold("t"):
        raise error
    assert elsewhere(lambda: take(lock)) == "t"
    assert len(lock) == 0


def test_those_who_wait_are_served_in_the_order_they_came() -> None:
    lock = ProcessThreadLock(timeout=None)
    served: list[int] = []

    def wait(number: int) -> None:
        with lock.hold("t"):
            served.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
    with lock.hold("t"):
        for number, thread in enumerate(threads):
            thread.start()
            while len(lock._queue._locks["t"].waiters) <= number:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert served == list(range(5))


async def test_a_hold_can_be_passed_on_within_its_block_and_for_its_thread(make: Make) -> None:
    lock = make()
    with lock.hold("t") as hold, holding(hold, "t", "x") as again:
        assert again is hold
    async with lock.ahold("t") as hold:
        async with aholding(hold, "t", "x") as again:
            assert again is hold
        with pytest.raises(ThreadLockLostError, match="'u': the hold passed is of thread 't'"):
            async with aholding(hold, "u", "x"):
                pass
    with pytest.raises(ThreadLockLostError, match="its block has ended"), holding(hold, "t", "x"):
        pass
    with pytest.raises(ThreadLockLostError, match="its block has ended"):
        async with aholding(hold, "t", "x"):
            pass


async def test_the_process_lock_stands_in_where_none_is_given() -> None:
    with holding(None, "t", "x") as hold:
        assert THREAD_LOCK.holder("t") is hold
        assert repr(hold) == "<Hold of thread 't' by x, held>"
    async with aholding(None, "t", "x") as hold:
        assert THREAD_LOCK.holder("t") is hold
    assert repr(hold) == "<Hold of thread 't' by x, not held>"


def test_the_owner_is_named_after_the_caller() -> None:
    with THREAD_LOCK.hold("t") as hold:
        assert hold.owner == f"thread {threading.current_thread().name}"

    async def named() -> Hold:
        async with THREAD_LOCK.ahold("t") as hold:
            return hold

    async def main() -> Hold:
        return await asyncio.create_task(named(), name="run 7")

    assert asyncio.run(main()).owner == "task run 7"


# -- across processes: a lock object of its own stands for a process ------------------------------


async def test_another_process_waits_and_is_told_who_holds_the_lock(postgres_database: str) -> None:
    ours, theirs = PostgresThreadLock(postgres_database), PostgresThreadLock(postgres_database)
    with ours.hold("t", owner="worker 1"):
        for attempt in (
            lambda: take(theirs, seconds=0.05),
            lambda: asyncio.run(atake(theirs, seconds=0.05)),
        ):
            with pytest.raises(
                ThreadLockTimeoutError, match=r"held by deerflow-saver lock: worker 1 \(backend"
            ):
                elsewhere(attempt)
        assert elsewhere(lambda: take(theirs, "u")) == "u"
        assert len(theirs) == 0
    assert elsewhere(lambda: take(theirs)) == "t"


def test_two_locks_of_one_database_are_one_for_whoever_asks_again(postgres_database: str) -> None:
    with (
        PostgresThreadLock(postgres_database).hold("t"),
        pytest.raises(ThreadLockReentryError),
    ):
        take(PostgresThreadLock(postgres_database))


async def test_a_lost_session_is_noticed_before_a_write_and_stops_nobody_else(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = PostgresThreadLock(postgres_database), PostgresThreadLock(postgres_database)

    def end(hold: Hold) -> None:
        with psycopg.connect(postgres_database, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (hold.session.info.backend_pid,))

    with caplog.at_level(logging.WARNING, "deerflow_saver"):
        with ours.hold("t", owner="me") as hold:
            hold.check()
            end(hold)
            assert elsewhere(lambda: take(theirs)) == "t"
            with pytest.raises(ThreadLockLostError, match="session that held the lock has ended"):
                hold.check()
        async with ours.ahold("t", owner="me") as hold:
            await hold.acheck()
            end(hold)
            assert await apart(atake(theirs)) == "t"
            with pytest.raises(ThreadLockLostError):
                await hold.acheck()
    assert [record.getMessage() for record in caplog.records] == [
        "thread 't': the session that held its lock (me) ended before the block did"
    ] * 2
    assert (len(ours), len(theirs)) == (0, 0)
    assert take(ours) == "t"


async def test_a_waiter_that_is_cancelled_leaves_no_session_behind(postgres_database: str) -> None:
    ours, theirs = PostgresThreadLock(postgres_database), PostgresThreadLock(postgres_database)

    def sessions() -> int:
        with psycopg.connect(postgres_database, autocommit=True) as admin:
            row = admin.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'deerflow%%' "
                "AND datname = current_database()"
            ).fetchone()
        assert row is not None
        return int(row[0])

    async with ours.ahold("t"):
        waiter = asyncio.create_task(atake(theirs), context=contextvars.Context())
        while await asyncio.to_thread(sessions) < 2:  # noqa: ASYNC110 - the server tells
            await asyncio.sleep(0.01)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    while await asyncio.to_thread(sessions):  # noqa: ASYNC110 - the server tells
        await asyncio.sleep(0.01)
    assert await atake(theirs) == "t"


async def test_through_a_pooler_of_transactions_one_holder_excludes_the_others(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every statement of its own would go to another session, or to another client's."""
    with (
        transaction_pooler(postgres_database, 3) as pooled,
        caplog.at_level(logging.WARNING, "deerflow_saver"),
    ):
        ours, theirs = PostgresThreadLock(pooled), PostgresThreadLock(pooled)
        direct = PostgresThreadLock(postgres_database)
        for _ in range(5):
            with ours.hold("t", owner="worker 1") as hold:
                for lock in (theirs, direct):
                    with pytest.raises(
                        ThreadLockTimeoutError, match="held by deerflow-saver lock: worker 1"
                    ):
                        elsewhere(lambda lock=lock: take(lock, seconds=0.05))
                hold.check()
                assert elsewhere(lambda: take(theirs, "u")) == "u"
            async with theirs.ahold("t") as hold:
                with pytest.raises(ThreadLockTimeoutError):
                    await apart(atake(ours, seconds=0.05))
                await hold.acheck()
            assert elsewhere(lambda: take(direct)) == "t"
    assert caplog.records == []


def test_timeouts_of_the_database_do_not_end_a_hold(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        for name in ("idle_in_transaction_session_timeout", "statement_timeout"):
            admin.execute(
                f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {name} = 200', "
                "current_database()); END $$"
            )
    ours, theirs = PostgresThreadLock(postgres_database), PostgresThreadLock(postgres_database)
    with ours.hold("t") as hold:
        with pytest.raises(ThreadLockTimeoutError):  # and not that its statement took too long
            elsewhere(lambda: take(theirs, seconds=0.6))
        hold.check()


def test_a_hold_holds_up_neither_a_vacuum_nor_a_setup(storage: Storage) -> None:
    """Its transaction has no snapshot, so indexes are made and old rows removed meanwhile."""
    postgres = next(case for case in CASES if case.name == "postgres")
    with (
        PostgresThreadLock(storage.postgres_uri).hold("t"),
        postgres.open(storage),
        psycopg.connect(storage.postgres_uri, autocommit=True) as admin,
    ):
        held = admin.execute(
            "SELECT backend_xmin, backend_xid FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'deerflow-saver lock%'"
        ).fetchall()
    assert held == [(None, None)]


async def test_a_hold_whose_transaction_has_failed_is_lost(postgres_database: str) -> None:
    """Postgres lets go of its lock as soon as a statement fails."""
    ours, theirs = PostgresThreadLock(postgres_database), PostgresThreadLock(postgres_database)
    async with ours.ahold("t") as hold:
        with pytest.raises(psycopg.Error):
            await hold.session.execute("SELECT 1 / 0")
        assert await apart(atake(theirs)) == "t"
        with pytest.raises(ThreadLockLostError):
            await hold.acheck()


def test_a_database_that_is_not_there_leaves_the_lock_free(tmp_path: Any) -> None:
    lock = PostgresThreadLock(f"host={tmp_path} dbname=none")
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            take(lock)
    assert len(lock) == 0


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(ImportError, match=r'pip install "deerflow-saver\[postgres\]"'):
        PostgresThreadLock("dbname=x")


def test_errors_survive_pickling() -> None:
    error = ThreadLockTimeoutError("late", thread_id="t", owner="me")
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), twin.thread_id, twin.owner) == (
        ThreadLockTimeoutError, "late", "t", "me",
    )  # fmt: skip
    assert isinstance(error, TimeoutError)
