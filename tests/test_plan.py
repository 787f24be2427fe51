"""A plan runs the same under both drivers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deerflow_saver._plan import Plan, adrive, drive


def adding() -> Plan[int]:
    first = yield "get", 1
    try:
        second = yield "get", 2
    except ValueError:
        second = yield "recover", 3
    return first + second


def table(fail: int | None = None) -> dict[str, Any]:
    def get(n: int) -> int:
        if n == fail:
            raise ValueError(n)
        return n * 10

    return {"get": get, "recover": lambda n: -n}


def atable(fail: int | None = None) -> dict[str, Any]:
    def awaited(call: Any) -> Any:
        async def acall(n: int) -> int:
            return call(n)

        return acall

    return {name: awaited(call) for name, call in table(fail).items()}


@pytest.mark.parametrize(("fail", "result"), [(None, 30), (2, 7)])
async def test_both_drivers_answer_requests_and_raise_failures_inside(
    fail: int | None, result: int
) -> None:
    assert drive(adding(), table(fail)) == result
    assert await adrive(adding(), atable(fail)) == result


async def test_what_a_plan_does_not_catch_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match="1"):
        drive(adding(), table(1))
    with pytest.raises(ValueError, match="1"):
        await adrive(adding(), atable(1))


async def test_a_cancellation_is_raised_inside_the_plan() -> None:
    ended = []

    def waiting() -> Plan[None]:
        try:
            yield "forever", None
        finally:
            ended.append("cleaned up")

    async def forever(_: object) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(adrive(waiting(), {"forever": forever}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cleaned up"]


def test_a_plan_without_requests_just_returns() -> None:
    def nothing() -> Plan[str]:
        return "done"
        yield  # makes it a generator

    assert drive(nothing(), {}) == "done"
