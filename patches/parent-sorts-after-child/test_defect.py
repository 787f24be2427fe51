"""A checkpoint made on a host whose clock was behind sorts before its parent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

ROOT: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
CHAINS = [
    (3, 1, 2),  # The root sorts last.
    (1, 4, 2, 3),  # One in the middle does.
    (5, 1, 6, 2, 3),  # Two do.
]


def checkpoint_of(place: int) -> Checkpoint:
    return {
        **empty_checkpoint(),
        "id": f"1f0c0000-0000-6000-8000-{place:012d}",
        "channel_versions": {"log": str(place)},
    }


def replayed(history: Any) -> list[Any]:
    return [value for _, _, value in history["log"]["writes"]]


@pytest.mark.parametrize("chain", CHAINS)
def test_every_ancestor_is_found(
    chain: Sequence[int], postgres_uri: str, wrap: Callable[[Any], Any]
) -> None:
    with PostgresSaver.from_conn_string(postgres_uri) as saver:
        saver.setup()
        head = ROOT
        for place in chain:
            head = saver.put(head, checkpoint_of(place), {}, {})
            saver.put_writes(head, [("log", place)], f"task {place}")
        history = wrap(saver).get_delta_channel_history(config=head, channels=["log"])
    assert replayed(history) == list(chain[:-1])


@pytest.mark.parametrize("chain", CHAINS)
def test_every_ancestor_is_found_async(
    chain: Sequence[int], postgres_uri: str, wrap: Callable[[Any], Any]
) -> None:
    async def walk() -> Any:
        async with AsyncPostgresSaver.from_conn_string(postgres_uri) as saver:
            await saver.setup()
            head = ROOT
            for place in chain:
                head = await saver.aput(head, checkpoint_of(place), {}, {})
                await saver.aput_writes(head, [("log", place)], f"task {place}")
            return await wrap(saver).aget_delta_channel_history(config=head, channels=["log"])

    assert replayed(asyncio.run(walk())) == list(chain[:-1])


def test_an_ancestor_that_is_not_stored_ends_the_walk(
    postgres_uri: str, wrap: Callable[[Any], Any]
) -> None:
    with PostgresSaver.from_conn_string(postgres_uri) as saver:
        saver.setup()
        gone = {"configurable": {**ROOT["configurable"], "checkpoint_id": checkpoint_of(9)["id"]}}
        parent = saver.put(gone, checkpoint_of(1), {}, {})
        saver.put_writes(parent, [("log", 1)], "task 1")
        head = saver.put(parent, checkpoint_of(2), {}, {})
        history = wrap(saver).get_delta_channel_history(config=head, channels=["log"])
    assert replayed(history) == [1]
