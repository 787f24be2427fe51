"""Whatever fails, and whoever writes meanwhile: the thread is as before or as after."""

from __future__ import annotations

import asyncio
import contextvars
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from deerflow_saver.state import (
    ContextCompactionBusy,
    ProcessThreadLock,
    ThreadLockLostError,
    ThreadLockReentryError,
    ThreadLockTimeoutError,
    acompact_thread,
    compact_thread,
)
from deerflow_saver.state.locks import THREAD_LOCK
from state.chat import Chat, count
from support.databases import fresh_postgres
from support.faulty import Faulty
from support.modes import thread
from support.racing import Lost, Racing
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

HERE = Path(__file__).parent
WRAPS: dict[str, Callable[[Any], Any]] = {
    "refusing": CachedHistorySaver,
    "unguarded": lambda saver: CachedHistorySaver(saver, guard="off"),
    "raw": lambda saver: saver,
}
every_wrap = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
both_modes = pytest.mark.parametrize("mode", ["full", "delta"])
before_and_after = pytest.mark.parametrize("afterwards", [False, True], ids=["before", "after"])
COMPACTED = ["q-1", "a-1"]
CALLS = {"full": 4, "delta": 5}
"""Of storage, in one compaction; the last is the write."""


class Fault(Exception):  # noqa: N818
    """Raised by a storage call."""


def fault() -> None:
    raise Fault


def assert_whole(chat: Chat, before: Any) -> bool:
    """The thread is as before, and can be compacted, or it is compacted: whether it is."""
    assert len(THREAD_LOCK) == 0
    after = chat.shown() != before
    if not after:
        assert compact_thread(chat.accessor, "1", summarize=count, keep=2).compacted
    assert chat.ids() == COMPACTED
    assert chat.accessor.get(thread()).values["summary_text"] == "q-0 a-0"
    assert len(chat.accessor.history(thread())) == len(before[1]) + 1
    chat.take(2)
    assert chat.ids() == [*COMPACTED, "q-2", "a-2"]
    return after


@both_modes
@every_wrap
@before_and_after
def test_a_storage_call_that_raises_leaves_the_thread_as_before_or_as_after(
    wrap: Callable[[Any], Any], mode: Any, afterwards: bool
) -> None:
    at = after = 0
    while True:
        saver = InMemorySaver()
        chat = Chat(mode, saver)
        chat.take(0, 1)
        before = chat.shown()
        faulty = Chat(mode, wrap(Faulty(saver, at, fault, afterwards=afterwards)))
        try:
            done = compact_thread(faulty.accessor, "1", summarize=count, keep=2)
        except Fault:
            after += assert_whole(chat, before)
        else:
            assert done.compacted
            break
        at += 1
    assert at >= 3
    assert after == (1 if afterwards else 0)


@both_modes
@every_wrap
@before_and_after
async def test_a_cancelled_compaction_leaves_the_thread_as_before_or_as_after(
    wrap: Callable[[Any], Any], mode: Any, afterwards: bool
) -> None:
    def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    at = after = 0
    while True:
        saver = InMemorySaver()
        chat = Chat(mode, saver)
        chat.take(0, 1)
        before = chat.shown()
        faulty = Chat(mode, wrap(Faulty(saver, at, cancel, afterwards=afterwards)))
        compacting = acompact_thread(faulty.accessor, "1", summarize=count, keep=2)
        try:
            done = await asyncio.create_task(compacting)
        except asyncio.CancelledError:
            after += assert_whole(chat, before)
        else:
            assert done.compacted
            break
        at += 1
    assert at >= 3
    assert after == (1 if afterwards else 0)


def test_a_process_killed_at_a_storage_call_leaves_the_thread_as_before_or_as_after(
    tmp_path: Path,
) -> None:
    """Kill -9, before and after each call, on a SQLite file."""
    copies, histories = [], {}
    for mode, number in CALLS.items():
        origin = tmp_path / f"{mode}.sqlite"
        with SqliteSaver.from_conn_string(str(origin)) as saver:
            chat = Chat(mode, saver)
            chat.take(0, 1)
            histories[mode] = chat.shown()
        for at in range(number):
            for when in ("before", "after"):
                copies.append(tmp_path / f"{mode}-{when}-{at}.sqlite")
                shutil.copy(origin, copies[-1])
    kill([f"{path.stem}={path}" for path in copies])
    results = []
    for path in copies:
        mode = path.stem.split("-")[0]
        with SqliteSaver.from_conn_string(str(path)) as saver:
            results.append(assert_whole(Chat(mode, saver), histories[mode]))
    assert results == [*[False] * 7, True, *[False] * 9, True]


def kill(children: list[str]) -> None:
    """Let children compact, each killed as it says."""
    worker = [sys.executable, HERE / "compaction_worker.py", *children]
    subprocess.run(worker, check=True, cwd=HERE.parent, timeout=150)


@both_modes
def test_so_does_one_killed_at_the_write_in_postgres(mode: str, postgres_uri: str) -> None:
    number = CALLS[mode] - 1
    with ExitStack() as databases:
        uris = [databases.enter_context(fresh_postgres(postgres_uri)) for _ in range(2)]
        histories = []
        for uri in uris:
            with PostgresSaver.from_conn_string(uri) as saver:
                saver.setup()
                chat = Chat(mode, saver)
                chat.take(0, 1)
                histories.append(chat.shown())
        ends = ("before", "after")
        kill([f"{mode}-{end}-{number}={uri}" for end, uri in zip(ends, uris, strict=True)])
        for end, uri, history in zip(ends, uris, histories, strict=True):
            with PostgresSaver.from_conn_string(uri) as saver:
                assert assert_whole(Chat(mode, saver), history) == (end == "after")


# -- whoever else writes ------------------------------------------------------------------------


def once(race: Callable[[], Any]) -> Callable[[], Any]:
    """The race, the first time only."""
    turns = iter([race])

    def run() -> Any:
        return next(turns, lambda: None)()

    return run


@both_modes
@every_wrap
@every_sync_case
def test_what_is_said_meanwhile_is_in_the_next_summary_and_is_not_lost(
    case: SaverCase, storage: Storage, wrap: Callable[[Any], Any], mode: Any
) -> None:
    with case.open(storage) as saver:
        for place in ("while it is summarised", "before it is stored"):
            chat, other = Chat(mode, wrap(saver)), Chat(mode, wrap(saver))
            chat.take(0, 1, thread_id=place)
            race = once(lambda other=other, place=place: other.take(2, thread_id=place))
            asked: list[str] = []

            late = place == "before it is stored"
            lock = Racing(race) if late else None
            steps = [asked.append, *([] if late else [lambda _, race=race: race()])]

            def summarize(request: Any, steps: Any = steps) -> str:
                for step in steps:
                    step(count(request))
                return count(request)

            done = compact_thread(chat.accessor, place, summarize=summarize, keep=2, lock=lock)
            assert asked == ["q-0 a-0", "q-0 a-0 q-1 a-1"]
            assert done.removed_message_count == 4
            assert chat.ids(place) == ["q-2", "a-2"]
            values = chat.accessor.get(thread(place)).values
            assert values["summary_text"] == asked[-1]
            assert values["notes"] == ["note 1", "note 3", "note 5"]
            other.take(3, thread_id=place)
            assert other.ids(place) == ["q-2", "a-2", "q-3", "a-3"]


@both_modes
@every_async_case
async def test_so_it_is_on_the_async_face(case: SaverCase, storage: Storage, mode: Any) -> None:
    async with case.aopen(storage) as saver:
        for number, wrap in enumerate(WRAPS.values()):
            chat, place = Chat(mode, wrap(saver)), str(number)
            await chat.atake(0, 1, thread_id=place)
            asked: list[str] = []
            say = once(lambda chat=chat, place=place: chat.atake(2, thread_id=place))

            async def summarize(request: Any, asked: Any = asked, say: Any = say) -> str:
                asked.append(count(request))
                saying = say()
                if saying is not None:
                    await asyncio.create_task(saying)
                return count(request)

            await acompact_thread(chat.accessor, place, summarize=summarize, keep=2)
            assert asked == ["q-0 a-0", "q-0 a-0 q-1 a-1"]
            state = await chat.accessor.aget(thread(place))
            assert [message.id for message in state.values["messages"]] == ["q-2", "a-2"]


@both_modes
@every_wrap
@every_sync_case
def test_a_head_that_moves_twice_makes_it_raise_and_store_nothing(
    case: SaverCase, storage: Storage, wrap: Callable[[Any], Any], mode: Any
) -> None:
    with case.open(storage) as saver:
        chat, other = Chat(mode, wrap(saver)), Chat(mode, wrap(saver))
        for place in ("summary", "store"):
            chat.take(0, 1, thread_id=place)
            said = iter(range(2, 9))

            def race(place: Any = place, said: Any = said) -> None:
                other.take(next(said), thread_id=place)

            def summarize(request: Any, race: Any = race, place: Any = place) -> str:
                if place == "summary":
                    race()
                return count(request)

            lock = Racing(race) if place == "store" else None
            with pytest.raises(NonHeadWriteError) as caught:
                compact_thread(chat.accessor, place, summarize=summarize, keep=2, lock=lock)
            head = other.accessor.get(thread(place)).config["configurable"]["checkpoint_id"]
            assert (caught.value.reason, caught.value.head_id) == ("fork", head)
            assert caught.value.thread_id == place
            assert other.ids(place) == [f"{kind}-{turn}" for turn in range(4) for kind in "qa"]
            assert "summary_text" not in other.accessor.get(thread(place)).values
            assert compact_thread(chat.accessor, place, summarize=count, keep=2).compacted


@both_modes
@every_wrap
def test_a_run_that_began_meanwhile_is_left_alone(wrap: Callable[[Any], Any], mode: Any) -> None:
    saver = wrap(InMemorySaver())
    chat = Chat(mode, saver)
    chat.take(0, 1)
    runs: list[Any] = []

    def summarize(request: Any) -> str:
        runs.append(chat.graph.stream(chat.asked(2), chat.config(), stream_mode="checkpoints"))
        next(runs[0])
        return count(request)

    with pytest.raises(ContextCompactionBusy):
        compact_thread(chat.accessor, "1", summarize=summarize, keep=2)
    assert len(runs) == 1
    list(runs[0])
    assert chat.ids() == ["q-0", "a-0", "q-1", "a-1", "q-2", "a-2"]


@every_wrap
@pytest.mark.parametrize("late", [True, False], ids=["before it is stored", "while summarised"])
def test_a_write_on_the_head_makes_it_raise(wrap: Callable[[Any], Any], late: bool) -> None:
    """So does a run under exit durability that is about to store its end."""
    raw = InMemorySaver()
    chat = Chat("delta", wrap(raw))
    chat.take(0, 1)

    def write() -> None:
        head: Any = raw.get_tuple(thread(checkpoint_ns=""))
        raw.put_writes(head.config, [("notes", ["raced"])], "11111111-0000-0000-0000-000000000000")

    def summarize(request: Any) -> str:
        if not late:
            write()
        return count(request)

    lock = Racing(once(write)) if late else None
    before = chat.accessor.history(thread())
    with pytest.raises(NonHeadWriteError) as caught:
        compact_thread(chat.accessor, "1", summarize=summarize, keep=2, lock=lock)
    assert caught.value.reason == "foreign writes"
    assert chat.accessor.history(thread()) == before


@both_modes
def test_a_run_that_shows_only_at_its_end_loses_no_message(mode: Any) -> None:
    """Under exit durability: its end is refused in delta mode, or goes without the summary."""
    chat = Chat(mode, CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1)
    parts = iter(chat.graph.stream(chat.asked(2), chat.config(), durability="exit"))
    next(parts)
    assert compact_thread(chat.accessor, "1", summarize=count, keep=2).compacted
    if mode == "delta":
        with pytest.raises(NonHeadWriteError):
            list(parts)
        assert chat.ids() == COMPACTED
    else:
        list(parts)
        assert chat.ids() == [f"{kind}-{turn}" for turn in range(3) for kind in "qa"]


async def test_of_two_compactions_at_once_the_second_finds_it_done() -> None:
    chat = Chat("delta", CachedHistorySaver(InMemorySaver()))
    chat.take(*range(4))
    dones = await asyncio.gather(
        *(acompact_thread(chat.accessor, "1", summarize=count, keep=2) for _ in range(2))
    )
    assert [done.compacted for done in dones] == [True, False]
    chat.take(*range(4, 8))

    def compact(_: int) -> bool:
        return compact_thread(chat.accessor, "1", summarize=count, keep=2).compacted

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(compact, range(2))) == [False, True]
    assert chat.ids() == ["q-7", "a-7"]


# -- a summariser that hangs, and the lock --------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_summariser_that_hangs_can_be_cancelled(kind: str) -> None:
    chat = Chat("delta", CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1)
    before = chat.shown()
    loop, began, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    async def hang(_: Any) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    def block(_: Any) -> str:
        loop.call_soon_threadsafe(began.set)
        release.wait()
        return "too late"

    summarize: Any = hang if kind == "async" else block
    task = asyncio.create_task(acompact_thread(chat.accessor, "1", summarize=summarize, keep=2))
    await began.wait()
    held = THREAD_LOCK.holder("1")
    assert held is not None
    assert held.owner == "compaction"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(THREAD_LOCK) == 0
    release.set()
    assert chat.shown() == before
    assert_whole(chat, before)


async def test_the_threads_lock_is_held_and_a_hold_is_used_as_it_is() -> None:
    chat = Chat("delta", CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1)
    with THREAD_LOCK.hold("1") as hold:
        with pytest.raises(ThreadLockReentryError):
            compact_thread(chat.accessor, "1", summarize=count, keep=2)
        assert compact_thread(chat.accessor, "1", summarize=count, keep=2, lock=hold).compacted
    chat.take(2)
    before = chat.shown()
    with pytest.raises(ThreadLockLostError):
        await acompact_thread(chat.accessor, "1", summarize=count, keep=2, lock=hold)
    lock = ProcessThreadLock(timeout=0.01)

    def apart() -> None:
        compact_thread(chat.accessor, "1", summarize=count, keep=2, lock=lock)

    async with lock.ahold("1", owner="somebody"):
        with pytest.raises(ThreadLockTimeoutError, match="held by somebody"):
            await asyncio.to_thread(lambda: contextvars.Context().run(apart))
    assert chat.shown() == before
    async with lock.ahold("1") as hold:
        done = await acompact_thread(chat.accessor, "1", summarize=count, keep=2, lock=hold)
        assert done.compacted


@both_modes
def test_a_lock_that_is_lost_before_the_write_stops_it(mode: Any) -> None:
    chat = Chat(mode, CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1)
    before = chat.shown()
    with pytest.raises(ThreadLockLostError):
        compact_thread(chat.accessor, "1", summarize=count, keep=2, lock=Lost())
    assert chat.shown() == before
