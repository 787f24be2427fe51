"""What the wrapper is meant to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deerflow_saver.bench.case import NEVER
from deerflow_saver.bench.pairs import Group
from deerflow_saver.bench.round_trips import ROUND_TRIPS

__all__ = ["AIMS", "Aim", "aim_of", "verdicts"]

_HISTORY = "get_delta_channel_history"


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound on one number of one side, at one length of the thread.

    Attributes:
        turns: the case's turns; None for any.
        what: a metric, whose ratio to raw is meant, or the name of a number.
        most: the bound.
        at_least: the bound is a lower one.

    """

    scenario: str
    turns: int | None
    side: str
    what: str
    most: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether a measured value is within the bound."""
        return value >= self.most if self.at_least else value <= self.most

    def __str__(self) -> str:
        """As the tables show it."""
        return f"{'≥' if self.at_least else '≤'} {self.most:g}"


AIMS = (
    Aim("agent", 2, "memory", "history", 0.6),
    Aim("agent", 20, "memory", "history", 0.15),
    Aim("agent", 200, "memory", "history", 0.08),
    Aim("agent", 2, "memory", "turn", 1.0),
    Aim("agent", 20, "memory", "turn", 1.0),
    Aim("agent", 200, "memory", "turn", 0.3),
    Aim("cold", None, "memory", "state", 1.1),
    Aim("paging", 200, "memory", "page", 0.2),
    Aim("long", None, "memory", "old history", 0.2),
    Aim("polling", 200, "memory", "memory held", 2.5),
    Aim("threads", None, "memory", "hit ratio", 0.95, at_least=True),
    Aim("workers", 20, "two-tier", "first read", 0.5),
    Aim("workers", 200, "two-tier", "first read", 0.2),
    Aim("workers", None, "two-tier", "inner calls of a first read", 1),
    Aim("workers", None, "two-tier", "round trips of a first read", 1),
    Aim("workers", 1000, "two-tier", "Redis bytes", 3),
)


def aim_of(group: Group, metric: str) -> Aim | None:
    """The aim for a metric's ratio in these cases."""
    return next((aim for aim in AIMS if aim.what == metric and _concerns(aim, group)), None)


def verdicts(groups: list[Group], clock: str) -> list[tuple[Aim, Group, float]]:
    """Every aim that these groups measured, with the value."""
    found = []
    for aim in AIMS:
        for group in groups:
            if _concerns(aim, group) and aim.side in group.sides:
                value = _value(aim, group, clock)
                if value is not None:
                    found.append((aim, group, value))
    return found


def _concerns(aim: Aim, group: Group) -> bool:
    """Cases with another axis moved have no aim."""
    case = group.case
    plain = (case.writers, case.payload_bytes) == (1, 128)
    cadence = case.snapshot_frequency == (100 if case.scenario == "long" else NEVER)
    named = aim.scenario == case.scenario and aim.turns in {None, case.turns}
    return plain and cadence and named


def _value(aim: Aim, group: Group, clock: str) -> float | None:
    special = _SPECIAL.get(aim.what)
    if special is not None:
        return special(group, aim.side)
    found = group.ratio(aim.side, aim.what, clock)
    return found.value if found else None


def _held(group: Group, side: str) -> float | None:
    return _quotient(group.value(side, "held_bytes"), group.value("raw", "held_bytes"))


def _redis(group: Group, side: str) -> float | None:
    return _quotient(group.value(side, "redis_bytes"), group.value(side, "serialised_write_bytes"))


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _inner(group: Group, side: str) -> float | None:
    """Reads of the raw saver beside the `get_tuple` that LangGraph makes anyway."""
    calls = group.calls(side, "first read")
    if calls is None:
        return None
    return calls.get("get_tuple", 0) - 1 + calls.get(_HISTORY, 0) + calls.get("list", 0)


def _round_trips(group: Group, side: str) -> float | None:
    calls = group.calls(side, "first read")
    return None if calls is None else calls.get(ROUND_TRIPS, 0)


_SPECIAL: dict[str, Callable[[Group, str], float | None]] = {
    "memory held": _held,
    "hit ratio": lambda group, side: group.value(side, "hit_ratio"),
    "inner calls of a first read": _inner,
    "round trips of a first read": _round_trips,
    "Redis bytes": _redis,
}
