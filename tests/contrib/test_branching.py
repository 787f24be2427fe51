"""A branch is made as a whole or not at all, wherever its request ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import HTTPException
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.contrib.fastapi.branching import branch
from deerflow_saver.contrib.fastapi.models import BranchRequest
from deerflow_saver.state import CheckpointStateAccessor
from state.chat import Chat
from support.faulty import Faulty
from support.modes import thread

MODES = ["full", "delta"]


class Fault(Exception):  # noqa: N818
    """A storage call that fails."""


def fault() -> None:
    raise Fault


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def branched(accessor: Any, without: tuple[str, ...] = ()) -> Any:
    head = await accessor.aget(thread())
    request = BranchRequest(message_ids=["a-2"], thread_id="new")
    return await branch(accessor, head, request, channel="messages", without=without)


def talked(mode: str, saver: Any) -> Chat:
    chat = Chat(mode, saver)
    for turn in (1, 2, 3):
        chat.graph.invoke(chat.asked(turn), chat.config())
    return chat


def rows(saver: Any) -> list[Any]:
    return list(saver.list(thread("new")))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", [fault, cancel])
@pytest.mark.parametrize("afterwards", [False, True], ids=["before", "after"])
async def test_a_storage_call_that_fails_or_is_cancelled_leaves_no_half_branch(
    mode: Any, end: Callable[[], None], afterwards: bool
) -> None:
    at = 0
    while True:
        saver = InMemorySaver()
        chat = talked(mode, saver)
        faulty = Faulty(saver, at, end, afterwards=afterwards)
        accessor = CheckpointStateAccessor(chat.graph, CachedHistorySaver(faulty), mode)
        try:
            made = await asyncio.create_task(branched(accessor))
        except (Fault, asyncio.CancelledError):
            assert rows(saver) == []
        else:
            break
        at += 1
    assert at >= 6
    state = chat.accessor.get(thread("new"))
    assert state.config["configurable"]["checkpoint_id"] == made.checkpoint_id
    assert [message.id for message in state.values["messages"]] == ["q-1", "a-1", "q-2", "a-2"]


@pytest.mark.parametrize("mode", MODES)
async def test_what_another_process_made_of_the_new_thread_is_left_to_it(mode: Any) -> None:
    saver = InMemorySaver()
    chat = talked(mode, saver)
    other = Chat(mode, saver)

    class Raced(CheckpointStateAccessor):
        async def areplace(self, config: Any, values: Any, **options: Any) -> Any:
            if len(values["messages"]) > 2:
                other.graph.invoke(other.asked(9), other.config("new"))
                raise HTTPException(500, "gone")
            return await super().areplace(config, values, **options)

    with pytest.raises(HTTPException, match="gone"):
        await branched(Raced(chat.graph, saver, mode))
    state = chat.accessor.get(thread("new"))
    assert [message.id for message in state.values["messages"]][-2:] == ["q-9", "a-9"]


async def test_a_failure_to_take_it_back_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    saver = InMemorySaver()
    chat = talked("delta", saver)

    class Gone(CheckpointStateAccessor):
        async def areplace(self, config: Any, values: Any, **options: Any) -> Any:
            raise HTTPException(500, "gone")

        async def aget_metadata(self, config: Any) -> Any:
            raise Fault

    with pytest.raises(HTTPException, match="gone"):
        await branched(Gone(chat.graph, saver, "delta"))
    assert "half a branch may be left: new" in caplog.text
