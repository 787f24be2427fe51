"""One algorithm, two drivers.

A plan is a generator that yields `(operation, argument)` and is sent the answer. The
drivers below run it over a table of plain callables or of coroutine functions, so an
algorithm that reads, decides and writes is written once for both faces of a saver.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

__all__ = ["Operations", "Plan", "adrive", "drive"]

T = TypeVar("T")
Plan = Generator[tuple[str, Any], Any, T]
Operations = Mapping[str, Callable[[Any], Any]]
"""What a plan may request: calls that block, or that give something to await."""


def drive(plan: Plan[T], calls: Mapping[str, Callable[[Any], Any]]) -> T:
    """Run `plan` with blocking calls; what a call raises is raised inside the plan."""
    try:
        operation, argument = next(plan)
        while True:
            try:
                answer = calls[operation](argument)
            except BaseException as error:  # noqa: BLE001 - the plan decides, as its caller would
                operation, argument = plan.throw(error)
            else:
                operation, argument = plan.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def adrive(plan: Plan[T], calls: Mapping[str, Callable[[Any], Awaitable[Any]]]) -> T:
    """Run `plan` with awaited calls; a cancellation is raised inside the plan."""
    try:
        operation, argument = next(plan)
        while True:
            try:
                answer = await calls[operation](argument)
            except BaseException as error:  # noqa: BLE001 - the plan decides, as its caller would
                operation, argument = plan.throw(error)
            else:
                operation, argument = plan.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
