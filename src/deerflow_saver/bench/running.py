"""Run a matrix: case by case, rows as they come, what is there already left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deerflow_saver.bench.case import Case
from deerflow_saver.bench.lockstep import Outcome, run_case
from deerflow_saver.bench.rows import append, load, provenance, resolve_git_sha
from deerflow_saver.bench.servers import Servers

__all__ = ["Run", "can_run", "cell_name", "done_already"]


@dataclass(frozen=True, slots=True)
class Run:
    """How cases are run, and where their rows go.

    Attributes:
        sides: the sides of every case.
        timeout: seconds of work for each cell.
        profiles: a folder for profiles; profiled rows are marked, and no report uses them.
        output: the file that rows are appended to; None keeps nothing.
        here: run all cells in this process.

    """

    sides: Sequence[str]
    timeout: float = 900.0
    profiles: Path | None = None
    output: Path | None = None
    here: bool = False

    def run(
        self, cases: Sequence[Case], servers: Servers, tell: Callable[[Case], None]
    ) -> list[dict[str, Any]]:
        """Measure every case; the rows."""
        about = provenance("ab", resolve_git_sha())
        if self.profiles is not None:
            self.profiles.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, Any]] = []
        for case in cases:
            tell(case)
            sides = [side for side in self.sides if can_run(case, side)]
            outcomes = run_case(
                case,
                sides,
                servers,
                timeout=self.timeout,
                profiles=self.profiles,
                here=self.here,
            )
            found = [self._row(about, case, outcome) for outcome in outcomes]
            if self.output is not None:
                append(self.output, found)
            rows += found
        return rows

    def _row(self, about: dict[str, Any], case: Case, outcome: Outcome) -> dict[str, Any]:
        return {
            **about,
            "cell": cell_name(case, outcome.side),
            **case.as_dict(),
            "side": outcome.side,
            "success": outcome.success,
            "error": outcome.error,
            "profiled": self.profiles is not None,
            "child_process_ms": outcome.child_process_ms,
            **outcome.figures,
        }


def can_run(case: Case, side: str) -> bool:
    """The alternative has no async face."""
    return not (side == "alternative" and case.backend.startswith("async-"))


def cell_name(case: Case, side: str) -> str:
    """What tells a cell from all others."""
    return json.dumps([side, *case.as_dict().values()], separators=(",", ":"))


def done_already(
    cases: Iterable[Case], sides: Sequence[str], output: Path
) -> tuple[list[Case], list[str]]:
    """The cases that still have to be run, and the commits that the others were measured on.

    A case is done when each of its sides has a row that succeeded and was not profiled.
    """
    if not output.exists():
        return list(cases), []
    rows = [row for row in load([output]) if row.get("success") and not row.get("profiled")]
    there = {row.get("cell"): str(row.get("git_sha")) for row in rows}
    left: list[Case] = []
    commits: set[str] = set()
    for case in cases:
        names = [cell_name(case, side) for side in sides if can_run(case, side)]
        if all(name in there for name in names):
            commits.update(there[name] for name in names)
        else:
            left.append(case)
    return left, sorted(commits)
