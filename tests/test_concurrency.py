"""Readers and writers at the same time: one walk for many, and nothing stale afterwards."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from support.threads import CHANNEL, Line


class Gated(InMemorySaver):
    """A memory saver whose walk can be held up, made to fail, and counted."""

    def __init__(self) -> None:
        super().__init__()
        self.walks = 0
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.aentered = asyncio.Event()
        self.agate = asyncio.Event()
        self.failure: Exception | None = None
        self.gate.set()
        self.agate.set()

    @functools.wraps(InMemorySaver.get_delta_channel_history)
    def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        self.walks += 1
        self.entered.set()
        assert self.gate.wait(30)
        if self.failure is not None:
            raise self.failure
        return super().get_delta_channel_history(config=config, channels=channels)

    @functools.wraps(InMemorySaver.aget_delta_channel_history)
    async def aget_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        self.walks += 1
        self.aentered.set()
        found = super().get_delta_channel_history
        result = InMemorySaver.get_delta_channel_history(self, config=config, channels=channels)
        await self.agate.wait()
        if self.failure is not None:
            raise self.failure
        del found
        return result


@pytest.fixture
def cold() -> tuple[Gated, Line, CachedHistorySaver]:
    """A thread with history and a wrapper that knows nothing of it."""
    inner = Gated()
    line = Line(inner)
    line.grow(20)
    return inner, line, CachedHistorySaver(inner)


def test_the_test_saver_is_taken_for_the_storage_saver_it_is(cold: Any) -> None:
    inner, line, saver = cold
    line.history(saver)
    line.history(saver)
    assert inner.walks == 1


def test_sixteen_threads_on_one_cold_key_cost_one_walk(cold: Any) -> None:
    inner, line, saver = cold
    inner.gate.clear()
    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(line.history, saver) for _ in range(16)]
        assert inner.entered.wait(30)
        inner.gate.set()
        results = [future.result(30) for future in futures]
    assert inner.walks == 1
    expected = line.history(inner)
    assert all(result == expected for result in results)
    assert len({id(result[CHANNEL]["writes"]) for result in results}) == 16


async def test_sixteen_tasks_on_one_cold_key_cost_one_walk(cold: Any) -> None:
    inner, line, saver = cold
    inner.agate.clear()
    tasks = [asyncio.create_task(line.ahistory(saver)) for _ in range(16)]
    await inner.aentered.wait()
    inner.agate.set()
    results = await asyncio.gather(*tasks)
    assert inner.walks == 1
    assert all(result == results[0] for result in results)


async def test_a_cancelled_leader_does_not_fail_its_followers(cold: Any) -> None:
    inner, line, saver = cold
    inner.agate.clear()
    leader = asyncio.create_task(line.ahistory(saver))
    await inner.aentered.wait()
    followers = [asyncio.create_task(line.ahistory(saver)) for _ in range(3)]
    await asyncio.sleep(0)
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    inner.agate.set()
    results = await asyncio.gather(*followers)
    assert all(result == line.history(InMemoryOf(inner)) for result in results)


async def test_a_cancelled_follower_does_not_disturb_the_leader(cold: Any) -> None:
    inner, line, saver = cold
    inner.agate.clear()
    leader = asyncio.create_task(line.ahistory(saver))
    await inner.aentered.wait()
    follower = asyncio.create_task(line.ahistory(saver))
    await asyncio.sleep(0)
    follower.cancel()
    with pytest.raises(asyncio.CancelledError):
        await follower
    inner.agate.set()
    assert await leader == line.history(InMemoryOf(inner))
    assert inner.walks == 1


def InMemoryOf(inner: Gated) -> InMemorySaver:  # noqa: N802 - reads as a type would
    """The same rows, read without gate and counter."""
    plain = InMemorySaver()
    plain.storage, plain.writes, plain.blobs = inner.storage, inner.writes, inner.blobs
    return plain


def test_a_failing_walk_fails_each_reader_with_the_savers_error_and_is_not_remembered(
    cold: Any,
) -> None:
    inner, line, saver = cold
    inner.failure = OSError("connection lost")
    inner.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(line.history, saver) for _ in range(4)]
        assert inner.entered.wait(30)
        inner.gate.set()
        for future in futures:
            with pytest.raises(OSError, match="connection lost"):
                future.result(30)
    inner.failure = None
    assert line.history(saver) == line.history(InMemoryOf(inner))


def test_a_sync_call_inside_a_loop_does_not_wait_for_a_task_of_that_loop(cold: Any) -> None:
    inner, line, saver = cold
    inner.agate.clear()

    async def main() -> None:
        task = asyncio.create_task(line.ahistory(saver))
        await inner.aentered.wait()
        assert line.history(saver) == line.history(InMemoryOf(inner))
        inner.agate.set()
        await task

    asyncio.run(asyncio.wait_for(main(), 30))


def meanwhile(inner: Gated, read: Callable[[], Any], act: Callable[[], Any]) -> Any:
    """What `read` gives when `act` happens while its walk is under way."""
    inner.gate.clear()
    inner.entered.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(read)
        assert inner.entered.wait(30)
        act()
        inner.gate.set()
        return future.result(30)


def test_a_walk_under_way_during_a_delete_cannot_bring_the_thread_back(cold: Any) -> None:
    inner, line, saver = cold
    meanwhile(inner, lambda: line.history(saver), lambda: saver.delete_thread(line.thread_id))
    assert line.history(saver) == {CHANNEL: {"writes": []}}


def test_a_walk_under_way_during_a_late_write_is_not_kept(cold: Any) -> None:
    inner, line, _ = cold
    saver = CachedHistorySaver(inner, guard="off")
    late = Line(saver, line.thread_id, ids=line.ids[:5])
    meanwhile(inner, lambda: line.history(saver), lambda: late.write(["late"]))
    assert line.history(saver) == line.history(InMemoryOf(inner))
    assert ["late"] in [value for _, _, value in line.history(saver)[CHANNEL]["writes"]]


def test_a_walk_under_way_during_a_purge_is_not_kept(cold: Any) -> None:
    inner, line, saver = cold

    def rewrite() -> None:
        inner.writes.clear()
        saver.purge_thread(line.thread_id)

    meanwhile(inner, lambda: line.history(saver), rewrite)
    assert line.history(saver) == {CHANNEL: {"writes": []}}


def test_threads_that_read_write_and_delete_at_once_always_agree_with_the_saver() -> None:
    inner = InMemorySaver()
    saver = CachedHistorySaver(inner)
    lines = [Line(saver) for _ in range(4)]
    failures: list[Any] = []

    def work(line: Line) -> None:
        for round_ in range(6):
            line.grow(5)
            if line.history(saver) != line.history(inner):
                failures.append((round_, line.history(saver), line.history(inner)))
            if round_ == 3:
                saver.delete_thread(line.thread_id)
                line.ids.clear()

    threads = [threading.Thread(target=work, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert saver.cache_info().errors == 0


def test_a_write_whose_outcome_is_unknown_is_asked_for_again() -> None:
    class Losing(InMemorySaver):
        armed = False

        @functools.wraps(InMemorySaver.put_writes)
        def put_writes(self, *args: Any, **kwargs: Any) -> None:
            super().put_writes(*args, **kwargs)
            if self.armed:
                self.armed = False
                raise OSError("connection lost after the write")

    inner = Losing()
    saver = CachedHistorySaver(inner)
    line = Line(saver)
    line.grow(3)
    assert line.history() == line.history(inner)
    inner.armed = True
    with pytest.raises(OSError, match="connection lost"):
        line.write(["stored after all"])
    line.put()
    line.grow(2)
    assert line.history() == line.history(inner)
    assert ["stored after all"] in [value for _, _, value in line.history()[CHANNEL]["writes"]]


async def test_a_cancelled_write_leaves_nothing_stale() -> None:
    class Slow(InMemorySaver):
        gate: asyncio.Event | None = None

        @functools.wraps(InMemorySaver.aput_writes)
        async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
            if self.gate is not None:
                try:
                    await self.gate.wait()
                finally:
                    super().put_writes(*args, **kwargs)
                return
            super().put_writes(*args, **kwargs)

    inner = Slow()
    saver = CachedHistorySaver(inner)
    line = Line(saver)
    await line.agrow(3)
    inner.gate = asyncio.Event()
    task = asyncio.create_task(line.awrite(["cancelled, stored all the same"]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    inner.gate = None
    await line.aput()
    await line.agrow(2)
    assert await line.ahistory() == line.history(inner)
