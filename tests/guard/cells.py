"""One run of one scenario, and all that is to be known about it afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from guard.audit import Findings, changed, findings, histories
from guard.latency import Delay, Latency
from guard.scenarios.env import Durability, Env, Face, finish
from guard.scenarios.kinds import Kind
from guard.scenarios.registry import Scenario
from guard.storage import Dump, Place, Postgres

__all__ = ["DELTA", "Cell", "Outcome", "play"]

DELTA: dict[Kind, frozenset[str]] = {
    "full": frozenset(),
    "delta": frozenset({"log", "ref", "messages"}),
    "mixed": frozenset({"log", "messages"}),
}
"""The channels of each kind that are delta channels."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A scenario and the axes it is run on."""

    scenario: Scenario
    kind: Kind
    durability: Durability
    face: Face
    delay: Delay = "prompt"
    alike: bool = True

    def __str__(self) -> str:
        """As a test's id shows it."""
        parts = (self.scenario.name, self.kind, self.durability, self.face, self.delay)
        return "-".join((*parts, *(() if self.alike else ("unlike",))))


@dataclass(slots=True)
class Outcome:
    """What a run left behind."""

    cell: Cell
    trace: list[Any] = field(default_factory=list)
    values: Any = None
    accepted: list[str] = field(default_factory=list)
    error: str | None = None
    """An error that is no refusal."""
    refusals: list[Any] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    changed: list[Any] = field(default_factory=list)
    """Checkpoints whose history changed after they were stored."""
    disagreeing: list[Any] = field(default_factory=list)
    """States in which the delta channel and the plain one differ."""
    returned: int = 0
    """How many of the runs that met were not refused."""
    went_on: str | None = None
    """What became of the turn after a refusal; None if it ended well."""
    before: Dump | None = field(default=None, repr=False)
    """The database just before the fork, or before the runs met."""
    after: Dump | None = field(default=None, repr=False)
    """The database just after."""
    observed: int = 0

    @property
    def forked(self) -> bool:
        """Whether a thread's line is broken or its past has changed."""
        return bool(self.findings) or bool(self.changed)


def play(cell: Cell, place: Place, *, guard: str | None = None, strict: bool = False) -> Outcome:
    """Run a scenario; on the raw saver if there is no `guard` policy."""
    playing = _play(cell, place, guard, strict=strict)
    return finish(playing) if cell.face == "invoke" else asyncio.run(playing)


async def _play(cell: Cell, place: Place, guard: str | None, *, strict: bool) -> Outcome:
    outcome = Outcome(cell)
    latency = Latency(cell.delay, DELTA[cell.kind], cell.alike)
    async with place.opened(cell.face, latency) as inner:
        saver: Any = inner
        if guard is not None:
            saver = CachedHistorySaver(inner, guard=guard, strict=strict)
        env = Env(saver, cell.kind, cell.durability, cell.face)
        env.refusals = () if guard is None else (NonHeadWriteError,)
        past: dict[Any, str] = {}

        def mark() -> None:
            outcome.before = place.dump()
            if cell.kind != "full":
                with place.looking() as looking:
                    past.update(histories(looking, DELTA[cell.kind]))

        env.on_fork = env.on_meeting = mark
        await _run(cell, env, outcome)
        if outcome.refusals and isinstance(place, Postgres):
            await place.mend(inner)
        outcome.after = place.dump()
        outcome.findings = findings(outcome.after)
        if past:
            with place.looking() as looking:
                outcome.changed = changed(past, histories(looking, DELTA[cell.kind]))
        await _look(cell, env, outcome)
        if outcome.refusals:
            await _go_on(env, place, outcome)
        if guard is not None:
            info = saver.cache_info()
            outcome.observed = info.observed
    return outcome


async def _run(cell: Cell, env: Env, outcome: Outcome) -> None:
    try:
        await cell.scenario.body(env)
    except env.refusals as error:
        outcome.refusals.append(error)
    except Exception as error:  # noqa: BLE001 - compared with the other run's
        outcome.error = f"{type(error).__name__}: {error}"
    outcome.refusals += env.refused
    outcome.accepted = env.turns
    outcome.returned = env.returned
    outcome.trace = env.trace


async def _look(cell: Cell, env: Env, outcome: Outcome) -> None:
    outcome.values = await env.values()
    if cell.kind == "mixed":
        for graph, config, _ in env.threads.values():
            snapshots = await env.history(graph, config) if "log" in graph.channels else []
            for snapshot in snapshots:
                log, ref = (snapshot.values.get(name) for name in ("log", "ref"))
                if (log or []) != (ref or []):
                    outcome.disagreeing.append((log, ref))


async def _go_on(env: Env, place: Place, outcome: Outcome) -> None:
    """Another turn after a refusal, without naming a checkpoint."""
    try:
        await env.again()
    except Exception as error:  # noqa: BLE001 - the test reports it
        outcome.went_on = f"{type(error).__name__}: {error}"
    else:
        broken = findings(place.dump())
        outcome.went_on = str(broken) if broken else None
