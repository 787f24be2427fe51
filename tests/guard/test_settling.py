"""A read waits for saves under way, and for those that a cancelled run has yet to begin."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.guard.state import GuardState
from guard.bare import DELTA, checkpoint, config, put

KEY = ("thread", "")
TURNS = 40


@pytest.fixture
def saver() -> Any:
    return CachedHistorySaver(InMemorySaver())


def state_of(saver: Any) -> GuardState:
    state: GuardState = saver.guard.state
    return state


def reading(saver: Any) -> asyncio.Task[None]:
    """Wait as a read does."""
    settle = saver._self_guard.asynchronous["settle"]
    return asyncio.ensure_future(settle(KEY))


async def turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(6))
async def test_a_save_that_begins_while_a_read_looks_round_is_waited_for(
    saver: Any, turns: int
) -> None:
    state, loop = state_of(saver), asyncio.get_running_loop()
    state.land(KEY, state.take_off(KEY, loop))
    read = reading(saver)
    await turn(turns)
    if not read.done():
        follower = state.take_off(KEY, loop)
        await turn(TURNS)
        assert not read.done()
        state.land(KEY, follower)
    await read
    assert not state.unsettled(KEY, loop)


async def test_what_follows_a_save_that_came_and_went_meanwhile_is_waited_for(saver: Any) -> None:
    state, loop = state_of(saver), asyncio.get_running_loop()
    read = reading(saver)
    await turn(2)
    state.land(KEY, state.take_off(KEY, loop))
    await turn(4)  # so often has the read turned by now
    follower = state.take_off(KEY, loop)
    await turn(TURNS)
    assert not read.done()
    state.land(KEY, follower)
    await read


async def test_turns_of_the_loop_settle_a_namespace_and_not_the_clock(saver: Any) -> None:
    state, loop = state_of(saver), asyncio.get_running_loop()
    state.land(KEY, state.take_off(KEY, loop))
    time.sleep(0.05)  # noqa: ASYNC251 - the loop stands still, the clock does not
    assert state.unsettled(KEY, loop)
    await reading(saver)
    assert not state.unsettled(KEY, loop)


async def test_a_run_that_has_read_may_save_and_a_caller_does_it_by_itself(saver: Any) -> None:
    put(saver)
    state, loop = state_of(saver), asyncio.get_running_loop()
    key = config()["configurable"]["thread_id"], ""
    await saver.aget_tuple(config())
    assert not state.unsettled(key, loop)
    running: Any = {"configurable": {**config()["configurable"], "__pregel_runtime": object()}}
    await saver.aget_tuple(running)
    assert state.unsettled(key, loop)


async def test_a_cancelled_save_that_goes_on_is_read(saver: Any) -> None:
    """A chain of saves, each begun by the end of the one before, as LangGraph leaves behind."""
    ids = []

    async def chain(before: asyncio.Task[None] | None, parent: str | None, made: Any) -> None:
        if before is not None:
            await before
        await asyncio.gather(*([before] if before is not None else []))
        await saver.aput(config(parent), made, DELTA, {})

    task: asyncio.Task[None] | None = None
    parent: str | None = None
    for _ in range(10):
        made = checkpoint()
        task = asyncio.ensure_future(chain(task, parent, made))
        parent = made["id"]
        ids.append(parent)
    await asyncio.sleep(0)
    row = await saver.aget_tuple(config())
    assert row.checkpoint["id"] == ids[-1]
