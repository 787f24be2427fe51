"""Whatever fails, and whoever writes meanwhile: the thread is as before or as after."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from deerflow_saver.state import (
    CheckpointStateAccessor,
    ProcessThreadLock,
    ThreadLockLostError,
    ThreadLockTimeoutError,
    alinearize_resume,
    linearize_resume,
)
from deerflow_saver.state.locks import THREAD_LOCK
from support.agent_in_modes import Agent
from support.faulty import Faulty
from support.kills import Kill, killed
from support.modes import thread
from support.racing import Lost, Racing
from support.savers import SYNC_CASES, SaverCase, Storage, every_async_case, every_sync_case

WRAPS: dict[str, Callable[[Any], Any]] = {
    "refusing": CachedHistorySaver,
    "unguarded": lambda saver: CachedHistorySaver(saver, guard="off"),
    "raw": lambda saver: saver,
}
every_wrap = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)


def asking_in_the_past(saver: Any, thread_id: str = "1") -> tuple[Agent, Any]:
    """A thread with a checkpoint that asks, and its config; every storage call is made for it."""
    agent = Agent("delta", saver)
    agent.graph.invoke({"log": ["one"], "do": "ask twice"}, thread(thread_id))
    agent.graph.invoke(Command(resume="a"), thread(thread_id))
    asking = agent.accessor.get(thread(thread_id)).config
    agent.graph.invoke(Command(resume="b"), thread(thread_id))
    agent.graph.invoke({"log": ["two"], "do": "ask"}, thread(thread_id))
    return agent, asking["configurable"]


def shown(saver: Any, thread_id: str = "1") -> Any:
    """All that readers of a thread are shown."""
    accessor = Agent("delta", saver).accessor
    return accessor.get(thread(thread_id)), accessor.history(thread(thread_id))


class Fault(Exception):  # noqa: N818
    """Raised by a storage call."""


def fault() -> None:
    raise Fault


@every_wrap
@pytest.mark.parametrize("afterwards", [False, True], ids=["before", "after"])
def test_a_storage_call_that_raises_leaves_the_thread_as_before_or_as_after(
    wrap: Callable[[Any], Any], afterwards: bool
) -> None:
    at = after = 0
    while True:
        saver = InMemorySaver()
        agent, names = asking_in_the_past(saver)
        before = shown(saver)
        config = thread(**names)
        faulty = wrap(Faulty(saver, at, fault, afterwards=afterwards))
        accessor = CheckpointStateAccessor(agent.graph, faulty, "delta")
        try:
            done = linearize_resume(accessor, config)
        except Fault:
            assert config == thread(**names)
        else:
            assert done is not None
            assert config == thread(checkpoint_ns="")
            break
        assert len(THREAD_LOCK) == 0
        if shown(saver) == before:
            assert linearize_resume(agent.accessor, config) is not None
        else:
            after += 1
        assert_taken_back(agent)
        at += 1
    assert at >= 6
    assert after == (1 if afterwards else 0)


def assert_taken_back(agent: Agent, thread_id: str = "1") -> None:
    """The thread waits for the answer to the second question; nothing else of it is left."""
    state = agent.accessor.get(thread(thread_id))
    assert [asked.value for asked in state.interrupts] == ["second?"]
    out = agent.graph.invoke(Command(resume="B"), thread(thread_id))
    assert "answered aB" in out["log"]
    assert not {"answered ab", "two"} & set(out["log"])


@every_wrap
@pytest.mark.parametrize("afterwards", [False, True], ids=["before", "after"])
async def test_a_cancelled_resume_leaves_the_thread_as_before_or_as_after(
    wrap: Callable[[Any], Any], afterwards: bool
) -> None:
    at = after = 0
    while True:
        saver = InMemorySaver()
        agent, names = asking_in_the_past(saver)
        before = shown(saver)
        config = thread(**names)

        def cancel() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        faulty = wrap(Faulty(saver, at, cancel, afterwards=afterwards))
        accessor = CheckpointStateAccessor(agent.graph, faulty, "delta")
        task = asyncio.create_task(alinearize_resume(accessor, config))  # type: ignore[arg-type]
        try:
            assert await task is not None
        except asyncio.CancelledError:
            assert config == thread(**names)
        else:
            break
        assert len(THREAD_LOCK) == 0
        if shown(saver) == before:
            assert await alinearize_resume(agent.accessor, config) is not None
        else:
            after += 1
        assert_taken_back(agent)
        at += 1
    assert at >= 6
    assert after == (1 if afterwards else 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_process_killed_at_a_storage_call_leaves_the_thread_as_before_or_as_after(
    kind: str, storage: Storage, tmp_path: Path
) -> None:
    """Kill -9, before the first call and after each, those in the writing transaction too."""
    case = next(case for case in SYNC_CASES if case.name == kind)
    uri = storage.sqlite_path if kind == "sqlite" else storage.postgres_uri
    kills, before = [], []
    with case.open(storage) as saver:
        for at in (None, -1, *range(7)):
            agent, names = asking_in_the_past(saver, str(at))
            before.append(shown(saver, str(at)))
            place, selected = None if at is None else max(at, 0), names["checkpoint_id"]
            kills.append(Kill(uri, "delta", str(at), place, at != -1, selected))
    died = killed(kills, tmp_path)
    assert sum(died) == 7, "one before the first call and one after each"
    with case.open(storage) as saver:
        agent = Agent("delta", saver)
        for kill, was_killed, as_before in zip(kills, died, before, strict=True):
            after = shown(saver, kill.thread_id) != as_before
            assert after or was_killed
            if not after:
                config = thread(kill.thread_id, checkpoint_id=kill.selected)
                assert linearize_resume(agent.accessor, config) is not None
            assert_taken_back(agent, kill.thread_id)


# -- whoever else writes ----------------------------------------------------------------------


def updates(agent: Agent) -> None:
    agent.accessor.update(thread(), {"log": ["raced"]}, as_node="close")


def runs(agent: Agent) -> None:
    agent.graph.invoke({"log": ["raced"], "do": "x"}, thread())


def answers(agent: Agent) -> None:
    agent.graph.invoke(Command(resume="raced"), thread())


def writes_late(agent: Agent) -> None:
    saver = agent.accessor.checkpointer
    saver = getattr(saver, "inner", saver)
    head = saver.get_tuple(thread(checkpoint_ns=""))
    saver.put_writes(head.config, [("log", ["raced"])], "11111111-0000-0000-0000-000000000000")


def overtake(saver: Any, wrap: Callable[[Any], Any], race: Callable[[Agent], None]) -> str:
    """Go back while `race` writes; gives the reason why that was refused."""
    agent, names = asking_in_the_past(wrap(saver))
    stored: list[Any] = []

    def overtaking() -> None:
        race(Agent("delta", wrap(saver)))
        stored.append(shown(saver))

    config = thread(**names)
    with pytest.raises(NonHeadWriteError) as caught:
        linearize_resume(agent.accessor, config, lock=Racing(overtaking))
    assert config == thread(**names)
    assert [shown(saver)] == stored
    assert linearize_resume(agent.accessor, config) is not None
    assert_taken_back(agent)
    return caught.value.reason


@every_wrap
@every_sync_case
def test_a_head_that_moves_meanwhile_makes_it_raise_and_store_nothing(
    case: SaverCase, storage: Storage, wrap: Callable[[Any], Any]
) -> None:
    with case.open(storage) as saver:
        assert overtake(saver, wrap, updates) == "fork"


@every_wrap
@pytest.mark.parametrize(
    ("race", "reason"),
    [(runs, "fork"), (answers, "fork"), (writes_late, "foreign writes")],
    ids=["a turn", "an answer", "a late write"],
)
def test_so_does_whatever_else_writes_on_the_head(
    wrap: Callable[[Any], Any], race: Callable[[Agent], None], reason: str
) -> None:
    assert overtake(InMemorySaver(), wrap, race) == reason


@every_async_case
async def test_the_async_face_raises_too(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as saver:
        for wrap in WRAPS.values():
            agent = Agent("delta", wrap(saver))
            place = {"configurable": {"thread_id": str(wrap)}}
            await agent.graph.ainvoke({"log": ["one"], "do": "x"}, place)
            config = (await agent.accessor.aget(place)).config
            await agent.graph.ainvoke({"log": ["two"], "do": "x"}, place)

            async def race(agent: Agent = agent, place: Any = place) -> None:
                await agent.accessor.aupdate(place, {"log": ["raced"]}, as_node="close")

            with pytest.raises(NonHeadWriteError):
                await alinearize_resume(agent.accessor, config, lock=Racing(race))
            log = (await agent.accessor.aget(place)).values["log"]
            assert log[-1] == "raced"
            assert await alinearize_resume(agent.accessor, config) is not None
            assert (await agent.accessor.aget(place)).values["log"][-1] != "raced"


# -- the lock --------------------------------------------------------------------------------------


async def test_the_threads_lock_is_held_and_a_hold_is_used_as_it_is() -> None:
    agent, names = asking_in_the_past(InMemorySaver())
    with THREAD_LOCK.hold("1") as hold:
        assert linearize_resume(agent.accessor, thread(**names), lock=hold) is not None
    async with THREAD_LOCK.ahold("1") as hold:
        assert await alinearize_resume(agent.accessor, thread(**names), lock=hold) is not None
    before = shown(agent.accessor.checkpointer)
    with pytest.raises(ThreadLockLostError):
        linearize_resume(agent.accessor, thread(**names), lock=hold)
    lock = ProcessThreadLock(timeout=0.01)
    async with lock.ahold("1", owner="somebody"):
        with pytest.raises(ThreadLockTimeoutError, match="held by somebody"):
            await asyncio.to_thread(_apart, agent, thread(**names), lock)
    assert shown(agent.accessor.checkpointer) == before


def _apart(agent: Agent, config: Any, lock: Any) -> None:
    contextvars.Context().run(linearize_resume, agent.accessor, config, lock=lock)


def test_a_lock_that_is_lost_before_the_write_stops_it() -> None:
    agent, names = asking_in_the_past(InMemorySaver())
    before = shown(agent.accessor.checkpointer)
    config = thread(**names)
    with pytest.raises(ThreadLockLostError):
        linearize_resume(agent.accessor, config, lock=Lost())
    assert (config, shown(agent.accessor.checkpointer)) == (thread(**names), before)
