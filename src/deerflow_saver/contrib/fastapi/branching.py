"""A turn of one thread as the beginning of another."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import HTTPException
from langchain_core.messages import BaseMessage

from deerflow_saver._arguments import configurable
from deerflow_saver.contrib.fastapi.models import BranchRequest, BranchResponse
from deerflow_saver.state.ancestry import (
    checkpoint_messages,
    exists,
    is_metadata_only_checkpoint,
)
from deerflow_saver.state.lineage import SCAN_LIMIT, afind_base_before_message
from deerflow_saver.state.lineage_errors import CheckpointLineageError

__all__ = ["branch"]

logger = logging.getLogger("deerflow_saver")

_PAGE = 20
_GONE = "This turn can no longer be branched from."


async def branch(
    accessor: Any, head: Any, request: BranchRequest, *, channel: str, without: Collection[str]
) -> BranchResponse:
    """Make a thread that ends with a turn, and has the checkpoint before the turn as its base.

    Raises:
        HTTPException: 409, if the turn cannot be told, or the new thread exists.

    """
    end = await _end_of_turn(accessor, head, set(request.message_ids), channel)
    base = await _base_of_turn(accessor, end, set(request.message_ids), channel)
    thread_id = request.thread_id or str(uuid4())
    config = {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": ""},
        "metadata": _origin(end, request),
    }
    with _making(thread_id):
        if exists(await accessor.aget(config)):
            raise _taken(thread_id)
        states = [_inherited(state, without) for state in (base, end)]
        stored = await _written(accessor, config, states)
    return BranchResponse(
        thread_id=thread_id,
        checkpoint_id=str(configurable(stored)["checkpoint_id"]),
        parent_thread_id=str(configurable(end.config)["thread_id"]),
        parent_checkpoint_id=str(configurable(end.config)["checkpoint_id"]),
        base_checkpoint_id=base and str(configurable(base.config)["checkpoint_id"]),
    )


@contextmanager
def _making(thread_id: str) -> Iterator[None]:
    """Let one request at a time make a thread: looking whether it exists is a step of its own."""
    with _lock:
        if thread_id in _under_way:
            raise _taken(thread_id)
        _under_way.add(thread_id)
    try:
        yield
    finally:
        _under_way.discard(thread_id)


_lock = threading.Lock()
_under_way: set[str] = set()


def _taken(thread_id: str) -> HTTPException:
    return HTTPException(409, f"Thread {thread_id} exists already.")


async def _written(accessor: Any, config: dict[str, Any], states: list[dict[str, Any]]) -> Any:
    """The states as checkpoints of the new thread, or none of them."""
    stored = None
    try:
        for values in filter(None, states):
            # Each on the one before, not on what another process may have made the head.
            place = {**config["configurable"], **configurable(stored)}
            stored = await accessor.areplace(
                {**config, "configurable": place}, values, as_node="branch"
            )
    except BaseException:
        # Half a branch would pass for a thread. It is taken back whoever cancels the request
        await asyncio.shield(asyncio.ensure_future(_taken_back(accessor, config)))
        raise
    return stored


async def _taken_back(accessor: Any, config: dict[str, Any]) -> None:
    """Delete what was stored of the new thread; what somebody else stored there is theirs.

    A call that failed or was cancelled may have stored something, so the head is asked.
    """
    try:
        told = await accessor.aget_metadata(config) or {}
        if told.items() >= config["metadata"].items():
            await accessor.checkpointer.adelete_thread(config["configurable"]["thread_id"])
    except Exception:
        # The request's own error says more to its client
        logger.exception("half a branch may be left: %s", config["configurable"]["thread_id"])


async def _end_of_turn(accessor: Any, head: Any, answers: set[str], channel: str) -> Any:
    """The newest checkpoint that ends with the answers, as a reader sees it."""
    page = [head]
    for _ in range(SCAN_LIMIT // _PAGE + 1):
        for state in page:
            if not is_metadata_only_checkpoint(state) and _ends_with(
                _conversation(state, channel), answers
            ):
                return state
        if len(page) not in (1, _PAGE):
            break
        config = page[-1].config
        page = await accessor.ahistory(_thread(config), limit=_PAGE, before=config)
        if not page:
            break
    raise HTTPException(409, _GONE)


def _conversation(state: Any, channel: str) -> list[BaseMessage]:
    return [item for item in checkpoint_messages(state, channel) if isinstance(item, BaseMessage)]


def _ends_with(messages: list[BaseMessage], answers: set[str]) -> bool:
    known = {message.id for message in messages if message.type == "ai"}
    if not answers <= known:
        return False
    last = max(place for place, message in enumerate(messages) if message.id in answers)
    return not any(map(_is_visible, messages[last + 1 :]))


async def _base_of_turn(accessor: Any, end: Any, answers: set[str], channel: str) -> Any:
    """The checkpoint before the question that the answers belong to; None if there is none."""
    question = _question(_conversation(end, channel), answers)
    if question is None:
        return None
    try:
        return await afind_base_before_message(accessor, end, question, channel=channel)
    except CheckpointLineageError as error:
        raise HTTPException(409, _GONE) from error


def _question(messages: Iterable[BaseMessage], answers: set[str]) -> str | None:
    question: str | None = None
    for message in messages:
        if message.id in answers:
            break
        if message.type == "human" and _is_visible(message):
            question = message.id
    return question


def _is_visible(message: BaseMessage) -> bool:
    return message.type in {"human", "ai"} and not message.additional_kwargs.get("hide_from_ui")


def _inherited(state: Any, without: Collection[str]) -> dict[str, Any]:
    values = {} if state is None else state.values
    return {name: value for name, value in values.items() if name not in without}


def _origin(end: Any, request: BranchRequest) -> dict[str, Any]:
    parent = configurable(end.config)
    return {
        "deerflow_branch": True,
        "branch_parent_thread_id": parent["thread_id"],
        "branch_parent_checkpoint_id": parent["checkpoint_id"],
        "branch_parent_message_id": request.message_ids[-1],
        "branch_created_at": datetime.now(UTC).isoformat(),
    }


def _thread(config: Any) -> dict[str, Any]:
    return {
        "configurable": {
            "thread_id": configurable(config)["thread_id"],
            "checkpoint_ns": configurable(config).get("checkpoint_ns") or "",
        }
    }
