"""How large a request's body may be."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from deerflow_saver.contrib.fastapi.quoting import quoted
from deerflow_saver.errors import InvalidConfigError

__all__ = ["DEFAULT_MAX_BODY_BYTES", "limited_route"]

DEFAULT_MAX_BODY_BYTES = 10 * 2**20
"""Room for a long conversation, or some pictures."""


def limited_route(max_bytes: int) -> type[APIRoute]:
    """The class of routes that read no more than `max_bytes` of a body, and answer 413 beyond.

    A dependency would come too late: FastAPI has read the body by then. A refusal quotes what
    it refuses such that every answer can be sent.

    Raises:
        InvalidConfigError: `max_bytes` is no number of bytes.

    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        msg = f"max_body_bytes must be a number of bytes from 1 on, got {max_bytes!r}"
        raise InvalidConfigError(msg)

    class LimitedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def limited(request: Request) -> Response:
                _refuse_announced(request, max_bytes)
                try:
                    return await handle(Request(request.scope, _counted(request, max_bytes)))
                except RequestValidationError as error:
                    problems, body = quoted(error.errors()), quoted(error.body)
                    raise RequestValidationError(problems, body=body) from error
                except HTTPException as error:
                    error.detail = quoted(error.detail)
                    raise

            return limited

    return LimitedRoute


def _refuse_announced(request: Request, max_bytes: int) -> None:
    """Refuse a body that says itself how large it is, before any of it is read."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)


def _counted(request: Request, max_bytes: int) -> Callable[[], Coroutine[Any, Any, Any]]:
    """The request's messages, until they are too many."""
    read = 0

    async def receive() -> Any:
        nonlocal read
        message = await request.receive()
        read += len(message.get("body", b""))
        if read > max_bytes:
            raise _too_large(max_bytes)
        return message

    return receive


def _too_large(max_bytes: int) -> HTTPException:
    return HTTPException(413, f"The body may have {max_bytes} bytes.")
