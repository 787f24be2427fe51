"""A scenario: one row of the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deerflow_saver.fixes import Finding
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = [
    "ASYNC", "BLOCKING", "EVERY", "MEMORY", "POSTGRES", "SQL", "SQLITE", "Finding", "Scenario",
    "compared", "repeated",
]  # fmt: skip

EVERY = ("m", "s", "as", "p", "ap")
"""InMemorySaver, SqliteSaver, AsyncSqliteSaver, PostgresSaver, AsyncPostgresSaver."""
MEMORY = ("m",)
SQL = ("s", "as", "p", "ap")
SQLITE = ("s", "as")
POSTGRES = ("p", "ap")
ASYNC = ("as", "ap")
BLOCKING = ("m", "s", "p")

_WIDTH = 240


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run that shows a defect, if it is there."""

    name: str
    """Unique, as the matrix prints it; begins with the short name of the upstream report."""
    slug: str
    """The defect it belongs to."""
    play: Callable[[Stage], Finding]
    savers: Sequence[str] = EVERY
    """The savers it can be played on."""


def compared(states: Mapping[str, Any]) -> Finding:
    """Present if in any of the named states the delta channel differs from the plain one."""
    wrong = [f"{name}: {_pair(values)}" for name, values in states.items() if _differ(values)]
    if wrong:
        return Finding(present=True, evidence="; ".join(wrong)[:_WIDTH])
    return Finding(present=False, evidence=f"delta == plain on {', '.join(states)}"[:_WIDTH])


def repeated(play: Callable[[Stage], Finding], times: int = 20) -> Callable[[Stage], Finding]:
    """`play` on new threads until it shows the defect.

    Where an order hangs on hashes of random ids, a single run comes out right by chance: two
    tasks in every second one. With twenty runs that is one cell in a million.
    """

    def played(stage: Stage) -> Finding:
        findings = _until_present(play, stage, times)
        return list(findings)[-1]

    return played


def _until_present(play: Callable[[Stage], Finding], stage: Stage, times: int) -> Iterator[Finding]:
    for _ in range(times):
        finding = play(stage)
        yield finding
        if finding.present:
            return


def _differ(values: Mapping[str, Any]) -> bool:
    return bool((values.get("delta") or []) != (values.get("plain") or []))


def _pair(values: Mapping[str, Any]) -> str:
    return f"delta={values.get('delta')} plain={values.get('plain')}"
