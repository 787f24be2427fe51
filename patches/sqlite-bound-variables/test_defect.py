"""A walk over more ancestors than SQLite takes variables; the limit is lowered to keep it small."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import aiosqlite
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

ROOT: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
CHANNELS = ["one", "two", "three"]
STEPS = 40
LIMIT = 100  # Stands for SQLite's own, 32766 by default: 3 channels x 40 ancestors exceed it.
EXPECTED = {channel: [[step] for step in range(STEPS)] for channel in CHANNELS}


def checkpoint_of(step: int) -> Checkpoint:
    return {**empty_checkpoint(), "channel_versions": dict.fromkeys(CHANNELS, str(step))}


def writes_of(step: int) -> list[tuple[str, Any]]:
    return [(channel, [step]) for channel in CHANNELS]


def replayed(history: Any) -> dict[str, list[Any]]:
    return {name: [value for _, _, value in found["writes"]] for name, found in history.items()}


def test_a_long_walk_fits_the_limit(wrap: Callable[[Any], Any]) -> None:
    with SqliteSaver.from_conn_string(":memory:") as saver:
        head = ROOT
        for step in range(STEPS):
            head = saver.put(head, checkpoint_of(step), {}, {})
            saver.put_writes(head, writes_of(step), f"task {step}")
        head = saver.put(head, checkpoint_of(STEPS), {}, {})
        saver.conn.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, LIMIT)
        try:
            history = wrap(saver).get_delta_channel_history(config=head, channels=CHANNELS)
        except sqlite3.OperationalError as error:
            pytest.fail(str(error))
    assert replayed(history) == EXPECTED


def test_a_long_walk_fits_the_limit_async(wrap: Callable[[Any], Any]) -> None:
    async def walk() -> Any:
        async with aiosqlite.connect(":memory:") as connection:
            saver = AsyncSqliteSaver(connection)
            head = ROOT
            for step in range(STEPS):
                head = await saver.aput(head, checkpoint_of(step), {}, {})
                await saver.aput_writes(head, writes_of(step), f"task {step}")
            head = await saver.aput(head, checkpoint_of(STEPS), {}, {})
            limit = (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, LIMIT)
            await connection._execute(connection._conn.setlimit, *limit)  # noqa: SLF001
            return await wrap(saver).aget_delta_channel_history(config=head, channels=CHANNELS)

    try:
        history = asyncio.run(walk())
    except sqlite3.OperationalError as error:
        pytest.fail(str(error))
    assert replayed(history) == EXPECTED
