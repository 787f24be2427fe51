"""The catalogue of flows, each with the verdict a guard has to reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from guard.scenarios.env import Env

__all__ = ["SCENARIOS", "Body", "Label", "Scenario", "concurrent", "fork", "legal"]

Label = Literal["L", "F", "R"]
Body = Callable[["Env"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A flow; `label` is `L` (legal), `F` (forks the thread) or `R` (runs meet)."""

    name: str
    label: Label
    body: Body

    def __str__(self) -> str:
        """As a test's id shows it."""
        return self.name


SCENARIOS: dict[str, Scenario] = {}


def legal(body: Body) -> Body:
    """Register a flow that must never be refused."""
    return _register("L", body)


def fork(body: Body) -> Body:
    """Register a flow that leaves a checkpoint with two children, if nobody stops it."""
    return _register("F", body)


def concurrent(body: Body) -> Body:
    """Register a flow of which one run may have to be refused."""
    return _register("R", body)


def _register(label: Label, body: Body) -> Body:
    name = body.__name__
    if name in SCENARIOS:
        message = f"two scenarios are called {name}"
        raise ValueError(message)
    SCENARIOS[name] = Scenario(name, label, body)
    return body
