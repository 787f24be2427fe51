"""Whatever fails while a thread is rolled back, and whoever writes meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from deerflow_saver.state import (
    ProcessThreadLock,
    ThreadLockLostError,
    ThreadLockTimeoutError,
    acapture_rollback_point,
    arestore,
    capture_rollback_point,
    restore,
)
from deerflow_saver.state.locks import THREAD_LOCK
from support.faulty import Faulty
from support.kills import Kill, killed
from support.modes import thread
from support.racing import Lost, Racing
from support.rollback_threads import AFTER, RUN, TURN, Stopping, cancel, make, shown
from support.savers import SYNC_CASES, SaverCase, Storage, every_async_case, every_sync_case

WRAPS: dict[str, Callable[[Any], Any]] = {
    "refusing": CachedHistorySaver,
    "raw": lambda saver: saver,
}
every_wrap = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
both_modes = pytest.mark.parametrize("mode", ["full", "delta"])
both_times = pytest.mark.parametrize("afterwards", [False, True], ids=["before", "after"])
HEADS = {"interrupted": AFTER["interrupted"], "empty": TURN}
both_heads = pytest.mark.parametrize("head", HEADS)


def left_by_a_run(mode: str, saver: Any, head: str, thread_id: str = "1") -> tuple[Any, Any, Any]:
    """A thread that a run has left: its point, what it showed before, and what it shows now."""
    agent = Stopping(mode, saver)
    make(agent, head, thread_id)
    before = shown(agent, thread_id)
    point = capture_rollback_point(agent.accessor, thread(thread_id))
    cancel(agent, HEADS[head], "after", thread_id)
    return point, before, shown(agent, thread_id)


class Fault(Exception):  # noqa: N818
    """Raised by a storage call."""


def fault() -> None:
    raise Fault


def rows(saver: Any) -> int:
    return len(list(saver.list(thread())))


@both_times
@both_heads
@every_wrap
@both_modes
def test_a_storage_call_that_raises_leaves_the_thread_as_it_was_or_restored(
    mode: str, wrap: Callable[[Any], Any], head: str, afterwards: bool
) -> None:
    at = restored = 0
    while True:
        saver = InMemorySaver()
        point, before, left = left_by_a_run(mode, saver, head)
        faulty = Faulty(saver, at, fault, afterwards=afterwards)
        accessor = Stopping(mode, wrap(faulty)).accessor
        try:
            assert restore(accessor, point, thread_id="1", run_id=RUN)
        except Fault:
            assert len(THREAD_LOCK) == 0
        else:
            break
        now = shown(Stopping(mode, saver))
        assert now in (before, left)
        restored += now == before
        assert restore(accessor, point, thread_id="1", run_id=RUN), "it can be repeated"
        assert shown(Stopping(mode, saver)) == before == shown_by(accessor)
        at += 1
    assert at >= 3
    assert restored == (1 if afterwards else 0)
    assert (rows(saver) == 0) == (head == "empty")


def shown_by(accessor: Any) -> Any:
    agent = Stopping(accessor.mode, accessor.checkpointer)
    return shown(agent)


@both_times
@both_heads
@both_modes
async def test_a_cancelled_restore_leaves_the_thread_as_it_was_or_restored(
    mode: str, head: str, afterwards: bool
) -> None:
    def stop() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    at = restored = 0
    while True:
        saver = InMemorySaver()
        point, before, left = left_by_a_run(mode, saver, head)
        faulty = CachedHistorySaver(Faulty(saver, at, stop, afterwards=afterwards))
        accessor = Stopping(mode, faulty).accessor
        task = asyncio.create_task(arestore(accessor, point, thread_id="1", run_id=RUN))
        try:
            assert await task
        except asyncio.CancelledError:
            assert len(THREAD_LOCK) == 0
        else:
            break
        now = shown(Stopping(mode, saver))
        assert now in (before, left)
        restored += now == before
        assert await arestore(accessor, point, thread_id="1", run_id=RUN)
        assert shown(Stopping(mode, saver)) == before
        at += 1
    assert at >= 3
    assert restored == (1 if afterwards else 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_process_killed_at_a_storage_call_leaves_the_thread_as_it_was_or_restored(
    kind: str, storage: Storage, tmp_path: Path
) -> None:
    """Kill -9, before the first call and after each, those in the writing transaction too."""
    case = next(case for case in SYNC_CASES if case.name == kind)
    uri = storage.sqlite_path if kind == "sqlite" else storage.postgres_uri
    kills, states = [], []
    with case.open(storage) as saver:
        for mode, head, most in (("delta", "interrupted", 11), ("full", "empty", 5)):
            for at in (None, -1, *range(most)):
                name = f"{head} {mode} {at}"
                point, *shown_there = left_by_a_run(mode, saver, head, name)
                states.append(shown_there)
                place = None if at is None else max(at, 0)
                kills.append(Kill(uri, mode, name, place, at != -1, None, point))
    died = killed(kills, tmp_path)
    for part, least in ((died[:13], 9), (died[13:], 4)):
        assert sum(part) >= least
        assert not part[-1], "one was killed after each call"
    with case.open(storage) as saver:
        for kill, was_killed, (before, left) in zip(kills, died, states, strict=True):
            agent = Stopping(kill.mode, saver)
            now = shown(agent, kill.thread_id)
            assert now == before or (was_killed and now == left)
            assert restore(agent.accessor, kill.point, thread_id=kill.thread_id, run_id=RUN)
            assert shown(agent, kill.thread_id) == before


# -- whoever else writes --------------------------------------------------------------------------


@every_wrap
@both_modes
@every_sync_case
def test_a_head_that_moves_meanwhile_makes_it_raise_and_store_nothing(
    case: SaverCase, storage: Storage, mode: str, wrap: Callable[[Any], Any]
) -> None:
    with case.open(storage) as saver:
        for head, given in HEADS.items():
            agent = Stopping(mode, wrap(saver))
            make(agent, head, head)
            point = capture_rollback_point(agent.accessor, thread(head))
            cancel(agent, given, "after", head)
            stored: list[Any] = []

            def overtake(head: str = head, stored: list[Any] = stored) -> None:
                other = Stopping(mode, wrap(saver))
                other.accessor.update(thread(head), {"log": ["raced"]}, as_node="close")
                stored.append(sorted(_ids(saver, head)))

            with pytest.raises(NonHeadWriteError) as caught:
                restore(agent.accessor, point, thread_id=head, run_id=RUN, lock=Racing(overtake))
            assert caught.value.reason == "fork"
            assert stored == [sorted(_ids(saver, head))]
            assert "raced" in shown(agent, head)[0]["log"]


def _ids(saver: Any, thread_id: str) -> list[str]:
    return [row.checkpoint["id"] for row in saver.list(thread(thread_id))]


@both_modes
@every_async_case
async def test_the_async_face_raises_too(case: SaverCase, storage: Storage, mode: str) -> None:
    async with case.aopen(storage) as saver:
        agent = Stopping(mode, CachedHistorySaver(saver))
        await agent.graph.ainvoke({"log": ["one"], "do": "x"}, thread())
        point = await acapture_rollback_point(agent.accessor, thread())
        await agent.graph.ainvoke(TURN, thread())

        async def overtake() -> None:
            other = Stopping(mode, CachedHistorySaver(saver))
            await other.accessor.aupdate(thread(), {"log": ["raced"]}, as_node="close")

        with pytest.raises(NonHeadWriteError):
            await arestore(agent.accessor, point, lock=Racing(overtake))
        assert "raced" in (await agent.accessor.aget(thread())).values["log"]


# -- the lock -------------------------------------------------------------------------------------


@both_heads
async def test_the_threads_lock_is_held_and_a_hold_is_used_as_it_is(head: str) -> None:
    agent = Stopping("delta", InMemorySaver())
    with THREAD_LOCK.hold("1") as hold:
        make(agent, head)
        point = capture_rollback_point(agent.accessor, thread(), lock=hold)
        cancel(agent, HEADS[head], "after")
        assert restore(agent.accessor, point, thread_id="1", run_id=RUN, lock=hold)
    async with THREAD_LOCK.ahold("1") as hold:
        again = await acapture_rollback_point(agent.accessor, thread(), lock=hold)
        cancel(agent, HEADS[head], "after")
        assert await arestore(agent.accessor, again, thread_id="1", run_id=RUN, lock=hold)
    cancel(agent, HEADS[head], "after")
    left = shown(agent)
    with pytest.raises(ThreadLockLostError):
        restore(agent.accessor, again, thread_id="1", run_id=RUN, lock=hold)
    lock = ProcessThreadLock(timeout=0.01)
    async with lock.ahold("1", owner="somebody"):
        for call in (
            lambda: capture_rollback_point(agent.accessor, thread(), lock=lock),
            lambda: restore(agent.accessor, again, thread_id="1", run_id=RUN, lock=lock),
        ):
            with pytest.raises(ThreadLockTimeoutError, match="held by somebody"):
                await asyncio.to_thread(contextvars.Context().run, call)
    assert shown(agent) == left


@both_heads
@both_modes
def test_a_lock_that_is_lost_before_the_write_stops_it(mode: str, head: str) -> None:
    saver = InMemorySaver()
    point, _, left = left_by_a_run(mode, saver, head)
    agent = Stopping(mode, CachedHistorySaver(saver))
    with pytest.raises(ThreadLockLostError):
        restore(agent.accessor, point, thread_id="1", run_id=RUN, lock=Lost())
    assert shown(agent) == left
