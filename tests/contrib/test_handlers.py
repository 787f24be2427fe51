"""The errors of this package, raised by an application's own routes."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi import FastAPI
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver.contrib.fastapi import install_error_handlers
from deerflow_saver.errors import UnknownStateFieldError
from deerflow_saver.state import arestore, capture_rollback_point
from state.chat import Chat
from support.modes import thread


async def answered(route: Any) -> httpx.Response:
    app = FastAPI()
    install_error_handlers(app)
    app.post("/")(route)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post("/")


async def test_a_rollback_that_is_refused_is_a_conflict() -> None:
    chat = Chat("delta", InMemorySaver())
    chat.graph.invoke(chat.asked(1), chat.config())
    point = capture_rollback_point(chat.accessor, thread())
    assert point is not None
    for run in ("1", "2"):
        config = {**chat.config(), "metadata": {"run_id": run}}
        chat.graph.invoke(chat.asked(run), config)

    async def cancel() -> None:
        await arestore(chat.accessor, point, run_id="1")

    answer = await answered(cancel)
    body = answer.json()
    assert (answer.status_code, body["error"]) == (409, "rollback_refused")
    assert body["checkpoint_id"] == point.checkpoint_id
    assert "run 2 has made it" in body["detail"]
    assert "nothing was changed" in body["reason"]


async def test_an_error_that_names_what_is_no_text_is_answered() -> None:
    async def unknown() -> None:
        raise UnknownStateFieldError(["a\ud800"])

    answer = await answered(unknown)
    assert answer.status_code == 422
    assert answer.json() == {"detail": "Unknown thread-state field(s): a?"}
