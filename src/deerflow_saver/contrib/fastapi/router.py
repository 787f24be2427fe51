"""The routes of a thread's state."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from fastapi import APIRouter, HTTPException, Request

from deerflow_saver.contrib.fastapi.branching import branch
from deerflow_saver.contrib.fastapi.limits import DEFAULT_MAX_BODY_BYTES, limited_route
from deerflow_saver.contrib.fastapi.models import (
    BranchRequest,
    BranchResponse,
    CompactRequest,
    CompactResponse,
    HistoryRequest,
    Problem,
    StateResponse,
    StateUpdateRequest,
    ThreadId,
)
from deerflow_saver.contrib.fastapi.values import storable
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.ancestry import exists
from deerflow_saver.state.compaction import acompact_thread
from deerflow_saver.state.locks import ThreadLock

__all__ = ["state_router"]

Provider = Callable[[Request, str], Any | Awaitable[Any]]
Opener = Callable[[Request, str], Awaitable[Any]]

_CHECKPOINT_ID = re.compile(r"[0-9a-fA-F-]{1,64}")
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is no JSON"},
    404: {"model": Problem, "description": "No such thread or checkpoint"},
    409: {"model": Problem, "description": "The thread is in a state that forbids it"},
    413: {"model": Problem, "description": "The body is too large"},
    422: {"model": Problem, "description": "The request makes no sense for this thread"},
    503: {"model": Problem, "description": "This process cannot serve the thread"},
}


def state_router(
    accessor: Provider,
    *,
    prefix: str = "/threads",
    messages: str = "messages",
    not_inherited: Collection[str] = ("sandbox", "thread_data"),
    summarizer: Provider | None = None,
    summary_channel: str | None = None,
    lock: ThreadLock | None = None,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
) -> APIRouter:
    """Routes to read, page, set, branch and compact thread state.

    The application still has to authorise (`include_router(..., dependencies=[...])`), to
    call `install_error_handlers`, and to keep runs and updates of a thread apart.

    Args:
        accessor: called with the request and the thread's id, for an accessor over a saver
            with an async face (`CheckpointStateAccessor`, or what `aopen_state_accessor`
            gives); may be async.
        prefix: of all paths.
        messages: the channel of messages, by which turns are told for branches, and which is
            compacted.
        not_inherited: channels that a branch does not get.
        summarizer: called as `accessor` is, for what `acompact_thread` is to summarise with;
            None, given or returned, switches compaction off.
        summary_channel: where summaries go (`acompact_thread`).
        lock: the threads' lock, held during a compaction; by default the process's lock.
        max_body_bytes: requests with a larger body are refused.

    """
    router = APIRouter(
        prefix=prefix, responses=_PROBLEMS, route_class=limited_route(max_body_bytes)
    )
    opened = _asked(accessor)
    _add_reads(router, opened)
    _add_writes(router, opened, messages, not_inherited)
    options = {"channel": messages, "summary_channel": summary_channel, "lock": lock}
    _add_compaction(router, opened, _asked(summarizer or _nothing), options)
    return router


def _asked(provider: Provider) -> Opener:
    """A provider, async or not, as an async one."""

    async def opened(request: Request, thread_id: str) -> Any:
        found = provider(request, thread_id)
        return await found if inspect.isawaitable(found) else found

    return opened


def _nothing(_request: Request, _thread_id: str) -> None:
    """Summarise with nothing."""


def _add_reads(router: APIRouter, opened: Opener) -> None:
    @router.get("/{thread_id}/state")
    async def get_state(
        request: Request, thread_id: ThreadId, checkpoint_id: str | None = None
    ) -> StateResponse:
        """The state at the head, or at a checkpoint."""
        reader = await opened(request, thread_id)
        return StateResponse.of(await _existing(reader, thread_id, checkpoint_id))

    @router.post("/{thread_id}/history")
    async def post_history(
        request: Request, thread_id: ThreadId, body: HistoryRequest
    ) -> list[StateResponse]:
        """A page of the history, newest first; empty for a thread without checkpoints."""
        reader = await opened(request, thread_id)
        found = await _page(reader, thread_id, body)
        return [StateResponse.of(snapshot, body.channels) for snapshot in found]


def _add_writes(
    router: APIRouter, opened: Opener, messages: str, not_inherited: Collection[str]
) -> None:
    @router.post("/{thread_id}/state")
    async def post_state(
        request: Request, thread_id: ThreadId, body: StateUpdateRequest
    ) -> StateResponse:
        """Set channels in a new checkpoint, and read it."""
        writer = _writing(await opened(request, thread_id))
        await _existing(writer, thread_id, body.checkpoint_id)
        values = storable(writer, body.values)
        config = _config(thread_id, body.checkpoint_id)
        try:
            stored = await writer.areplace(config, values, as_node=body.as_node)
        except InvalidConfigError as error:  # a node that there cannot be
            raise HTTPException(422, str(error)) from error
        return StateResponse.of(await writer.aget(stored))

    @router.post("/{thread_id}/branches", status_code=201)
    async def post_branches(
        request: Request, thread_id: ThreadId, body: BranchRequest
    ) -> BranchResponse:
        """Continue from a turn in a new thread; this one stays as it is."""
        writer = _writing(await opened(request, thread_id))
        head = await _existing(writer, thread_id, None)
        return await branch(writer, head, body, channel=messages, without=not_inherited)


def _add_compaction(
    router: APIRouter, opened: Opener, summarizer: Opener, options: Mapping[str, Any]
) -> None:
    failed = {"model": Problem, "description": "There was no summary that could be stored"}

    @router.post("/{thread_id}/compact", responses={500: failed})
    async def post_compact(
        request: Request, thread_id: ThreadId, body: CompactRequest | None = None
    ) -> CompactResponse:
        """Replace the older messages by a summary of them."""
        writer = _writing(await opened(request, thread_id))
        asked = body or CompactRequest(keep=None, force=True)
        done = await acompact_thread(
            writer,
            thread_id,
            summarize=await summarizer(request, thread_id),
            keep=asked.keep,
            force=asked.force,
            **options,
        )
        return CompactResponse.model_validate(done)


async def _existing(accessor: Any, thread_id: str, checkpoint_id: str | None) -> Any:
    if checkpoint_id is not None and not _CHECKPOINT_ID.fullmatch(checkpoint_id):
        # No saver has such an id, and some fail at looking for it.
        raise _no_checkpoint(checkpoint_id)
    snapshot = await accessor.aget(_config(thread_id, checkpoint_id))
    if exists(snapshot):
        return snapshot
    if checkpoint_id is None:
        raise HTTPException(404, f"Thread {thread_id} not found")
    raise _no_checkpoint(checkpoint_id)


async def _page(accessor: Any, thread_id: str, body: HistoryRequest) -> list[Any]:
    if body.before is None:
        return list(await accessor.ahistory(_config(thread_id), limit=body.limit))
    await _existing(accessor, thread_id, body.before)
    before = _config(thread_id, body.before)
    if _can_write(accessor):
        return list(await accessor.ahistory(_config(thread_id), limit=body.limit, before=before))
    # A raw reader pages from a checkpoint on, that one included.
    return list(await accessor.ahistory(before, limit=body.limit + 1))[1:]


def _no_checkpoint(checkpoint_id: str) -> HTTPException:
    named = f"Checkpoint {checkpoint_id}" if checkpoint_id else "Checkpoint"
    return HTTPException(404, f"{named} not found")


def _writing(accessor: Any) -> Any:
    if not _can_write(accessor):
        raise HTTPException(503, "Thread state can only be read: its graph cannot be built.")
    return accessor


def _can_write(accessor: Any) -> bool:
    return hasattr(accessor, "areplace")


def _config(thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any]:
    names = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": names | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}
