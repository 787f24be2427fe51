"""Run the cells of one case side by side: each in its own process, a round each by turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deerflow_saver.bench import measuring
from deerflow_saver.bench.case import Case
from deerflow_saver.bench.child import Child, Here
from deerflow_saver.bench.errors import ChildError
from deerflow_saver.bench.servers import Servers
from deerflow_saver.bench.sides import REDIS_SIDES
from deerflow_saver.bench.stage import Cell
from deerflow_saver.bench.storage import database

__all__ = ["MISMATCH", "Outcome", "mismatched", "run_case"]

MISMATCH = "cross-side state mismatch"


@dataclass(slots=True)
class Outcome:
    """What became of one cell: the row's figures, or an error."""

    side: str
    figures: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    child_process_ms: float = 0.0

    @property
    def success(self) -> bool:
        """Whether the figures may be used."""
        return self.error is None


@dataclass(slots=True)
class _Running:
    outcome: Outcome
    child: Child | Here

    def ask(self, command: Mapping[str, Any]) -> Any:
        """The answer; None once the cell has failed."""
        self.send(command)
        return self.answer()

    def finish(self) -> Any:
        """The figures; None once the cell has failed."""
        return self._tried(lambda: self.child.finish({"finish": True}))

    def send(self, command: Mapping[str, Any]) -> None:
        if self.outcome.success:
            self.child.send(command)

    def answer(self) -> Any:
        return self._tried(self.child.answer)

    def _tried(self, call: Callable[[], Any]) -> Any:
        if not self.outcome.success:
            return None
        try:
            return call()
        except ChildError as error:
            self.outcome.error = str(error)
            return None


def run_case(
    case: Case,
    sides: Sequence[str],
    servers: Servers,
    *,
    timeout: float,
    profiles: Path | None = None,
    here: bool = False,
) -> list[Outcome]:
    """Measure a case; one outcome per side, in their order.

    Threads are prepared at the same time. Then only one cell works at any moment, and which
    begins rotates from round to round, beginning with the repetition.

    Args:
        case: what to measure.
        sides: names of `case.SIDES`.
        servers: where Postgres and Redis are.
        timeout: seconds of work for each cell.
        profiles: a folder for a profile of each cell.
        here: run all cells in this process, for a check that keeps no figures.

    """
    options = _Options(timeout, profiles, here)
    with ExitStack() as stack:
        running = [
            _Running(Outcome(side), _started(_cell(case, side, servers, stack), options, stack))
            for side in sides
        ]
        for cell in running:
            cell.answer()
        for number in range(case.warm_up + case.rounds):
            for cell in _rotated(running, number + case.repetition - 1):
                if number == case.warm_up:
                    cell.ask({"drop": True})
                cell.ask({"round": number})
        for cell in running:
            cell.outcome.figures = cell.finish() or {}
            cell.outcome.child_process_ms = cell.child.lifetime_ms
        return mismatched([cell.outcome for cell in running])


def mismatched(outcomes: list[Outcome]) -> list[Outcome]:
    """Fail every cell of a case whose cells read different things."""
    done = [outcome for outcome in outcomes if outcome.success]
    if len({(o.figures["states"], o.figures["digest"]) for o in done}) > 1:
        for outcome in done:
            outcome.error = MISMATCH
    return outcomes


@dataclass(frozen=True, slots=True)
class _Options:
    timeout: float
    profiles: Path | None
    here: bool


def _cell(case: Case, side: str, servers: Servers, stack: ExitStack) -> Cell:
    server = servers.postgres if case.backend.endswith("postgres") else None
    address = stack.enter_context(database(case.backend, server, servers.own))
    redis = stack.enter_context(servers.redis_database()) if side in REDIS_SIDES else ""
    return Cell(case, side, address, redis)


def _started(cell: Cell, options: _Options, stack: ExitStack) -> Child | Here:
    if options.here:
        child: Child | Here = Here(measuring.cell(asdict(cell)))
    else:
        folder = options.profiles
        profile = None if folder is None else str(folder / f"{cell.case}-{cell.side}.prof")
        child = Child("cell", cell, timeout=options.timeout, profile=profile)
    stack.callback(child.close)
    return child


def _rotated(cells: Sequence[_Running], by: int) -> Iterable[_Running]:
    by %= len(cells)
    return [*cells[by:], *cells[:by]]
