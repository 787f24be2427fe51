"""A saver's sync and async face: an absent one keeps its error, none blocks or needs a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver import CachedHistorySaver
from support.conversation import aassert_reads_equal, assert_reads_equal, aturns, thread, turns
from support.savers import (
    ASYNC_CASES,
    SYNC_CASES,
    SaverCase,
    Storage,
    every_async_case,
    every_sync_case,
)

ROOT: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
only_sync = pytest.mark.parametrize(
    "case", [case for case in SYNC_CASES if case.kind == "sync"], ids=str
)
only_async = pytest.mark.parametrize(
    "case", [case for case in ASYNC_CASES if case.kind == "async"], ids=str
)
PATIENCE = 30.0
SEED = _DeltaSnapshot(["seed"])
"""Seconds until a read that waits for ever is taken for one."""


def sync_calls(config: Any) -> dict[str, Callable[[Any], Any]]:
    return {
        "get": lambda it: it.get(config),
        "get_tuple": lambda it: it.get_tuple(config),
        "list": lambda it: list(it.list(config)),
        "put": lambda it: it.put(config, empty_checkpoint(), {}, {}),
        "put_writes": lambda it: it.put_writes(config, [("messages", ["m"])], "task"),
        "get_delta_channel_history": lambda it: it.get_delta_channel_history(
            config=config, channels=["messages"]
        ),
        "delete_thread": lambda it: it.delete_thread("thread"),
    }


async def _listed(saver: Any, config: Any) -> list[Any]:
    return [row async for row in saver.alist(config)]


def async_calls(config: Any) -> dict[str, Callable[[Any], Awaitable[Any]]]:
    return {
        "aget": lambda it: it.aget(config),
        "aget_tuple": lambda it: it.aget_tuple(config),
        "alist": lambda it: _listed(it, config),
        "aput": lambda it: it.aput(config, empty_checkpoint(), {}, {}),
        "aput_writes": lambda it: it.aput_writes(config, [("messages", ["m"])], "task"),
        "aget_delta_channel_history": lambda it: it.aget_delta_channel_history(
            config=config, channels=["messages"]
        ),
        "adelete_thread": lambda it: it.adelete_thread("thread"),
    }


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives or raises, comparable."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is, both savers must raise it
        return (type(error), str(error))


async def aoutcome(call: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - as above
        return (type(error), str(error))


@only_sync
@pytest.mark.parametrize("warm", [False, True])
async def test_the_missing_async_face_keeps_its_error(
    case: SaverCase, warm: bool, storage: Storage
) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        config: Any = thread("thread", checkpoint_ns="", checkpoint_id="1")
        if warm:
            for _ in turns(saver, thread()):
                assert_reads_equal(saver, raw, thread())
            config = saver.get_tuple(thread()).config
        for name, call in async_calls(config).items():
            theirs = await aoutcome(lambda call=call: call(raw))
            assert theirs[0] is NotImplementedError, name
            assert await aoutcome(lambda call=call: call(saver)) == theirs, name
        if warm:  # nothing of it was taken for knowledge
            assert_reads_equal(saver, raw, thread())


@only_async
@pytest.mark.parametrize("warm", [False, True])
async def test_the_sync_face_on_the_savers_own_loop_keeps_its_error(
    case: SaverCase, warm: bool, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        config: Any = thread("thread", checkpoint_ns="", checkpoint_id="1")
        if warm:
            async for _ in aturns(saver, thread()):
                await aassert_reads_equal(saver, raw, thread())
            config = (await saver.aget_tuple(thread())).config
        calls = sync_calls(config)
        # Deletion last: even refused, it makes the wrapper forget
        for name in ("get_delta_channel_history", "get_tuple", "list", "delete_thread"):
            theirs = outcome(lambda name=name: calls[name](raw))
            assert theirs[0] is asyncio.InvalidStateError, name
            assert outcome(lambda name=name: calls[name](saver)) == theirs, name
        if warm:
            await aassert_reads_equal(saver, raw, thread())


@only_async
async def test_the_sync_face_works_beside_the_savers_loop(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        async for _ in aturns(saver, thread()):
            await asyncio.to_thread(assert_reads_equal, saver, raw, thread())
            await aassert_reads_equal(saver, raw, thread())


@every_sync_case
def test_sync_calls_need_no_loop(
    case: SaverCase, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        message = "a sync call must not touch an event loop"
        raise AssertionError(message)

    def use() -> None:
        with case.open(storage) as raw:
            saver: Any = CachedHistorySaver(raw)
            config = ROOT
            for _ in range(3):
                config = saver.put(config, empty_checkpoint(), {"source": "loop"}, {})
                saver.put_writes(config, [("log", "a")], "task")
            for name, call in sync_calls(config).items():
                if name != "delete_thread":
                    call(saver)
            saver.purge_thread("thread")
            saver.delete_thread("thread")

    for name in ("new_event_loop", "run", "run_coroutine_threadsafe", "get_event_loop"):
        monkeypatch.setattr(asyncio, name, refuse)
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(use).result()


@every_sync_case
async def test_a_sync_saver_works_inside_a_coroutine(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        for _ in turns(saver, thread()):
            assert_reads_equal(saver, raw, thread())


@every_async_case
def test_a_wrapper_is_made_without_a_loop(case: SaverCase, storage: Storage) -> None:
    async def opened() -> tuple[Any, Any]:
        manager = case.aopen(storage)
        return manager, await manager.__aenter__()

    with asyncio.Runner() as runner:
        manager, raw = runner.run(opened())
        saver: Any = CachedHistorySaver(raw)
        assert saver.cache_info().entries == 0
        saver.cache_clear()
        found = runner.run(saver.aget_tuple(thread()))
        runner.run(manager.__aexit__(None, None, None))
    assert found is None


class Held(InMemorySaver):
    """A saver whose async reads wait for the loop's other tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.go_on = asyncio.Event(), asyncio.Event()
        self.walks = 0

    async def aget_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        self.walks += 1
        self.reading.set()
        await self.go_on.wait()
        return await super().aget_delta_channel_history(config=config, channels=channels)


class HeldRows(InMemorySaver):
    """The same, for savers whose history is a walk over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.go_on = asyncio.Event(), asyncio.Event()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        self.reading.set()
        await self.go_on.wait()
        return await super().aget_tuple(config)


def filled(raw: InMemorySaver) -> RunnableConfig:
    """The head of a thread with one write, and a value to end the walk at."""
    root: Any = {**empty_checkpoint(), "channel_values": {"log": SEED}}
    root["channel_versions"] = {"log": "1"}
    config = InMemorySaver.put(raw, ROOT, root, {}, {"log": "1"})
    InMemorySaver.put_writes(raw, config, [("log", ["a"])], "task")
    return InMemorySaver.put(raw, config, empty_checkpoint(), {}, {})


@pytest.mark.parametrize("made", [Held, HeldRows])
@pytest.mark.parametrize("readers", [1, 5])
async def test_waiting_reads_leave_the_loop_free(made: type[Any], readers: int) -> None:
    raw = made()
    head = filled(raw)
    saver: Any = CachedHistorySaver(raw)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                saver.aget_delta_channel_history(config=head, channels=["log"]), name=str(number)
            )
            for number in range(readers)
        ]
        await raw.reading.wait()
        assert not any(task.done() for task in tasks)
        raw.go_on.set()  # only a free loop gets here
    expected = {"log": {"writes": [("task", "log", ["a"])], "seed": SEED}}
    assert [task.result() for task in tasks] == [expected] * readers


async def test_concurrent_reads_of_one_history_walk_once() -> None:
    raw = Held()
    head = filled(raw)
    saver: Any = CachedHistorySaver(raw)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(saver.aget_delta_channel_history(config=head, channels=["log"]))
        await raw.reading.wait()
        raw.go_on.set()
    assert raw.walks == 1


async def test_a_cancelled_reader_does_not_fail_those_who_wait_for_it() -> None:
    raw = Held()
    head = filled(raw)
    saver: Any = CachedHistorySaver(raw)
    first = asyncio.create_task(saver.aget_delta_channel_history(config=head, channels=["log"]))
    async with asyncio.timeout(PATIENCE):
        await raw.reading.wait()
        second = asyncio.create_task(
            saver.aget_delta_channel_history(config=head, channels=["log"])
        )
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        raw.go_on.set()
        found = await second
    assert found == await raw.aget_delta_channel_history(config=head, channels=["log"])


async def test_a_reader_in_another_thread_does_not_hold_up_the_loop() -> None:
    """The thread's read ends only when the loop's, of the same history, has."""

    class Slow(InMemorySaver):
        def __init__(self) -> None:
            super().__init__()
            self.reading, self.go_on = threading.Event(), threading.Event()

        def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
            self.reading.set()
            assert self.go_on.wait(PATIENCE), "the loop's reader waits for the thread's"
            return super().get_delta_channel_history(config=config, channels=channels)

        async def aget_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
            return InMemorySaver.get_delta_channel_history(self, config=config, channels=channels)

    raw = Slow()
    head = filled(raw)
    saver: Any = CachedHistorySaver(raw)
    in_thread = asyncio.create_task(
        asyncio.to_thread(saver.get_delta_channel_history, config=head, channels=["log"])
    )
    await asyncio.to_thread(raw.reading.wait, PATIENCE)
    found = await saver.aget_delta_channel_history(config=head, channels=["log"])
    raw.go_on.set()
    assert await in_thread == found


@every_async_case
async def test_many_tasks_read_and_write_at_once(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)

        async def converse(name: str) -> None:
            async for _ in aturns(saver, thread(name)):
                await aassert_reads_equal(saver, raw, thread(name))

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(converse(str(number)))
        assert saver.cache_info().errors == 0
