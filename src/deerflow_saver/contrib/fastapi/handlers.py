"""What the errors of this package are over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from deerflow_saver.contrib.fastapi.quoting import quoted
from deerflow_saver.errors import (
    CheckpointModeMismatchError,
    CheckpointModeReconfigurationError,
    RefusedWriteError,
    UnknownStateFieldError,
)
from deerflow_saver.state.compaction_errors import (
    ContextCompactionBusy,
    ContextCompactionDisabled,
    ContextCompactionFailed,
    ThreadCheckpointNotFoundError,
)
from deerflow_saver.state.lock_errors import ThreadLockLostError, ThreadLockTimeoutError
from deerflow_saver.state.resume_errors import CheckpointResumeError
from deerflow_saver.state.rollback_errors import RollbackError

__all__ = ["install_error_handlers"]

logger = logging.getLogger("deerflow_saver")


def install_error_handlers(app: FastAPI) -> None:
    """Answer this package's errors, wherever a route of `app` raises them.

    | error | status | `detail` |
    |---|---|---|
    | `CheckpointModeMismatchError` | 409 | `Thread <id>: <text>` |
    | `CheckpointModeReconfigurationError` | 503 | the text |
    | `RefusedWriteError` (the guard's) | 409 | the text, and fields of their own |
    | `UnknownStateFieldError` | 422 | the text |
    | `CheckpointResumeError`, `RollbackError` | 409 | the text, and why |
    | `ContextCompactionDisabled`, `ContextCompactionBusy` | 409 | the text |
    | `ContextCompactionFailed` | 500 | `Failed to compact thread context.` |
    | `ThreadCheckpointNotFoundError` | 404 | the text |
    | `ThreadLockTimeoutError`, `ThreadLockLostError` | 503 | `Thread <id> is busy. Try again.` |
    """
    handlers: dict[type[Exception], Callable[[Request, Any], Awaitable[JSONResponse]]] = {
        CheckpointModeMismatchError: _mismatch,
        CheckpointModeReconfigurationError: _reconfiguration,
        RefusedWriteError: _refused,
        UnknownStateFieldError: _unknown_fields,
        CheckpointResumeError: _not_resumed,
        RollbackError: _not_rolled_back,
        ContextCompactionDisabled: _conflict,
        ContextCompactionBusy: _conflict,
        ContextCompactionFailed: _not_compacted,
        ThreadCheckpointNotFoundError: _not_found,
        ThreadLockTimeoutError: _locked,
        ThreadLockLostError: _locked,
    }
    for error, handler in handlers.items():
        app.add_exception_handler(error, handler)


def _answer(content: Any, status: int, **options: Any) -> JSONResponse:
    return JSONResponse(quoted(content), status, **options)


async def _mismatch(request: Request, error: CheckpointModeMismatchError) -> JSONResponse:
    thread_id = error.thread_id or request.path_params.get("thread_id")
    return _answer({"detail": f"Thread {thread_id}: {error}"}, 409)


async def _reconfiguration(_: Request, error: CheckpointModeReconfigurationError) -> JSONResponse:
    return _answer({"detail": str(error)}, 503)


async def _refused(_: Request, error: RefusedWriteError) -> JSONResponse:
    conflict = {
        "detail": str(error),
        "error": "thread_moved_on",
        "reason": error.reason,
        "checkpoint_id": error.checkpoint_id,
        "head_id": error.head_id,
    }
    return _answer(conflict, 409)


async def _unknown_fields(_: Request, error: UnknownStateFieldError) -> JSONResponse:
    return _answer({"detail": str(error)}, 422)


async def _not_resumed(_: Request, error: CheckpointResumeError) -> JSONResponse:
    return _not_taken_back(error, "resume_refused")


async def _not_rolled_back(_: Request, error: RollbackError) -> JSONResponse:
    return _not_taken_back(error, "rollback_refused")


def _not_taken_back(error: CheckpointResumeError | RollbackError, name: str) -> JSONResponse:
    refused = {
        "detail": str(error),
        "error": name,
        "reason": " ".join(getattr(error, "__notes__", ())),
        "checkpoint_id": error.checkpoint_id,
    }
    return _answer(refused, 409)


async def _conflict(_: Request, error: Exception) -> JSONResponse:
    return _answer({"detail": str(error)}, 409)


async def _not_compacted(_: Request, error: ContextCompactionFailed) -> JSONResponse:
    # Why is the summariser's affair, and nothing for a client
    logger.error("a thread could not be compacted", exc_info=error)
    return _answer({"detail": "Failed to compact thread context."}, 500)


async def _not_found(_: Request, error: ThreadCheckpointNotFoundError) -> JSONResponse:
    return _answer({"detail": str(error)}, 404)


async def _locked(_: Request, error: ThreadLockTimeoutError | ThreadLockLostError) -> JSONResponse:
    busy = {"detail": f"Thread {error.thread_id} is busy. Try again."}
    return _answer(busy, 503, headers={"Retry-After": "1"})
