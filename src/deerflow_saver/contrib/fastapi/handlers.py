"""What the errors of this package are over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from deerflow_saver.errors import (
    CheckpointModeMismatchError,
    CheckpointModeReconfigurationError,
    RefusedWriteError,
    UnknownStateFieldError,
)

__all__ = ["install_error_handlers"]


def install_error_handlers(app: FastAPI) -> None:
    """Answer this package's errors, wherever a route of `app` raises them.

    | error | status | `detail` |
    |---|---|---|
    | `CheckpointModeMismatchError` | 409 | `Thread <id>: <text>` |
    | `CheckpointModeReconfigurationError` | 503 | the text |
    | `RefusedWriteError` (the guard's) | 409 | the text, and fields of their own |
    | `UnknownStateFieldError` | 422 | the text |
    """
    handlers: dict[type[Exception], Callable[[Request, Any], Awaitable[JSONResponse]]] = {
        CheckpointModeMismatchError: _mismatch,
        CheckpointModeReconfigurationError: _reconfiguration,
        RefusedWriteError: _refused,
        UnknownStateFieldError: _unknown_fields,
    }
    for error, handler in handlers.items():
        app.add_exception_handler(error, handler)


async def _mismatch(request: Request, error: CheckpointModeMismatchError) -> JSONResponse:
    thread_id = error.thread_id or request.path_params.get("thread_id")
    return JSONResponse({"detail": f"Thread {thread_id}: {error}"}, 409)


async def _reconfiguration(_: Request, error: CheckpointModeReconfigurationError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503)


async def _refused(_: Request, error: RefusedWriteError) -> JSONResponse:
    conflict = {
        "detail": str(error),
        "error": "thread_moved_on",
        "reason": error.reason,
        "checkpoint_id": error.checkpoint_id,
        "head_id": error.head_id,
    }
    return JSONResponse(conflict, 409)


async def _unknown_fields(_: Request, error: UnknownStateFieldError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)
