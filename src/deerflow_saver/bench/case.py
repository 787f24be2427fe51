"""What is measured: cases, their axes and defaults, and the matrix of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

__all__ = ["BACKENDS", "DEFAULTS", "NEVER", "SCENARIOS", "SIDES", "Case", "capped", "matrix"]

NEVER = 1_000_000
"""A cadence at which no thread here ever stores a snapshot: walks end at the thread's root."""

BACKENDS = ("memory", "sqlite", "postgres", "async-sqlite", "async-postgres", "own")
"""`own` is the saver that `--saver module:factory` names."""

SIDES = ("raw", "memory", "two-tier", "alternative")
"""The raw saver; the wrapper, with its memory alone and with Redis behind it; the published
alternative's algorithm. What Redis alone gives is the first read of a new cache: `cold`."""

SCENARIOS: Mapping[str, str] = {
    "agent": "an agent's turns: a plan, two parallel tools, an answer; five checkpoints each",
    "append": "one message a turn, and a node that does nothing",
    "threads": "many threads, read by zipf(1.1)",
    "long": "one long thread, old and new checkpoints read by turns",
    "polling": "`get_state` of a head that does not move",
    "paging": "`get_state_history`, page by page",
    "forks": "the heads of eight branches, read by turns",
    "cold": "the first reads of a new cache, and of a new process",
    "workers": "two processes take turns on one thread",
}

DEFAULTS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "agent": {"turns": (2, 20, 200)},
    "append": {"turns": (10, 100, 1000)},
    "threads": {"turns": (100,)},
    "long": {"turns": (20_000,), "snapshot_frequencies": (100,)},
    "polling": {"turns": (20, 200)},
    "paging": {"turns": (20, 200)},
    "forks": {"turns": (100,)},
    "cold": {"turns": (2, 20, 200)},
    "workers": {"turns": (20, 200)},
}
"""Axes of a scenario where the command line names none; a turn of `agent` is five writes."""


@dataclass(frozen=True, slots=True)
class Case:
    """One point of the matrix; its cells differ in nothing but the side.

    Attributes:
        turns: how long the thread is when measuring begins; of `threads`, `long` and `forks`,
            whose threads are stored without a graph, the checkpoints of a thread.
        payload_bytes: size of each message's text.
        snapshot_frequency: updates of the channel between two snapshots.
        writers: threads that take their turns at the same time, in `agent` and `append`.
        threads: how many threads `threads` reads.
        rounds: measured rounds.
        warm_up: rounds before them, whose figures are dropped.
        guard: the policy of the wrapped sides.

    """

    backend: str
    scenario: str
    turns: int
    payload_bytes: int = 128
    snapshot_frequency: int = NEVER
    writers: int = 1
    threads: int = 200
    repetition: int = 1
    seed: int = 1
    rounds: int = 15
    warm_up: int = 2
    guard: str = "off"

    def __str__(self) -> str:
        """As in the progress line, and in the names of profiles."""
        named = f"{self.backend}-{self.scenario}-turns-{self.turns}-payload-{self.payload_bytes}"
        cadence = "never" if self.snapshot_frequency == NEVER else self.snapshot_frequency
        return f"{named}-freq-{cadence}-writers-{self.writers}-rep-{self.repetition}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Case:
        """The case a row tells of."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    @property
    def group(self) -> tuple[Any, ...]:
        """What all repetitions have in common."""
        left_out = {"repetition", "seed"}
        return tuple(v for name, v in self.as_dict().items() if name not in left_out)

    @property
    def estimated_bytes(self) -> int:
        """Text that one cell stores: every write once, and every snapshot whole."""
        each = {"append": 1, "threads": 1, "long": 1, "forks": 1}.get(self.scenario, 5)
        rounds = self.rounds + self.warm_up
        writes = (self.turns + (0 if each == 1 else 2 * rounds)) * each
        snapshots = writes // self.snapshot_frequency
        whole = self.snapshot_frequency * snapshots * (snapshots + 1) // 2
        if self.scenario == "long":  # which is compacted
            whole = min(whole, snapshots * 250)
        conversations = self.threads if self.scenario == "threads" else self.writers
        return self.payload_bytes * (writes + whole) * conversations


def matrix(
    backends: Sequence[str],
    scenarios: Sequence[str],
    axes: Mapping[str, Sequence[int]],
    *,
    repetitions: int = 1,
    **fixed: Any,
) -> Iterator[Case]:
    """The cases of a run, repetition by repetition.

    Args:
        backends: names of `BACKENDS`.
        scenarios: names of `SCENARIOS`.
        axes: `turns`, `payload_bytes`, `snapshot_frequencies` and `writers`; an axis that is
            missing or empty takes the scenario's default.
        repetitions: how often each case is measured, always in new processes.
        fixed: further fields of every `Case`.

    """
    numbers = range(1, repetitions + 1)
    for repetition, backend, scenario in product(numbers, backends, scenarios):
        if scenario == "workers" and backend == "memory":
            continue  # another process cannot see it
        points = product(*_points(scenario, axes))
        for payload, frequency, writers, turns in points:
            yield Case(
                backend, scenario, turns, payload, frequency, writers, repetition=repetition,
                **fixed,
            )  # fmt: skip


def _points(scenario: str, axes: Mapping[str, Sequence[int]]) -> Iterator[Sequence[int]]:
    """The values of each axis, in the order of `Case`'s fields, the turns last."""
    own = DEFAULTS[scenario]
    yield axes.get("payload_bytes") or (128,)
    yield axes.get("snapshot_frequencies") or own.get("snapshot_frequencies", (NEVER,))
    yield (axes.get("writers") or (1,)) if scenario in {"agent", "append"} else (1,)
    yield axes.get("turns") or own["turns"]


def capped(cases: Sequence[Case], limit: int | None) -> tuple[list[Case], list[Case]]:
    """The cases to run, and those left out, with all their sides, because they store too much."""
    over = [case for case in cases if limit is not None and case.estimated_bytes > limit]
    return [case for case in cases if case not in over], over
