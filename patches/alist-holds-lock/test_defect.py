"""Writing between two items of `alist`: the saver's lock is not reentrant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

THREAD: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def test_a_checkpoint_can_be_written_to_while_it_is_listed(wrap: Callable[[Any], Any]) -> None:
    async def listed() -> list[Any]:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            config = THREAD
            for step in range(3):
                config = await saver.aput(config, empty_checkpoint(), {"step": step}, {})
                await saver.aput_writes(config, [("log", step)], f"task {step}")
            seen = []
            async for item in wrap(saver).alist(THREAD):
                # What the writes below would wait for, and never get.
                assert not saver.lock.locked()
                await saver.aput_writes(item.config, [("log", "late")], "a later task")
                seen.append((item.metadata["step"], [value for _, _, value in item.pending_writes]))
            return seen

    assert asyncio.run(listed()) == [(2, [2]), (1, [1]), (0, [0])]
