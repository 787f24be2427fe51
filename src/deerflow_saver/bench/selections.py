"""Selections of cases with a name: what CI checks, and what the docs show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deerflow_saver.bench.case import SCENARIOS, SIDES, Case, matrix

__all__ = ["Selection", "quick", "standard"]


_SHARED = ("raw", "two-tier")


@dataclass(frozen=True, slots=True)
class Selection:
    """Cases, and the sides that each of them has."""

    cases: Sequence[Case]
    sides: Sequence[str]


def quick() -> list[Selection]:
    """Every scenario on SQLite, and the agent on every backend, as small as they go."""
    small = {"rounds": 1, "warm_up": 1, "threads": 3}
    axes = {"turns": (4,), "snapshot_frequencies": (7,)}
    # Each side of these two starts a process, which takes a second or two.
    spawning = ("cold", "workers")
    alone = [name for name in SCENARIOS if name not in spawning]
    others = ("memory", "postgres", "async-sqlite", "async-postgres")
    agents = matrix(others, ("agent",), {**axes, "writers": (3,)}, **small)
    sides = SIDES
    return [
        Selection([*matrix(("sqlite",), alone, axes, **small), *agents], sides),
        Selection(
            list(matrix(("sqlite",), spawning, axes, **small)),
            [side for side in sides if side in {"raw", "memory", "two-tier"}],
        ),
    ]


def standard() -> list[Selection]:
    """What docs/benchmarks.md shows."""
    return list(_standard())


def _standard() -> Iterator[Selection]:
    sql = ("sqlite", "postgres")
    sides, local = SIDES, ("raw", "memory", "alternative")
    turns = {"turns": (2, 20, 200)}
    yield Selection(list(matrix(sql, ("agent", "cold"), turns)), sides)
    yield Selection(list(matrix(sql, ("workers",), {"turns": (20, 200)})), sides)
    yield Selection(list(matrix(("sqlite",), ("workers",), {"turns": (1000,)})), _SHARED)
    yield Selection(list(matrix(("memory",), ("agent",), turns)), local)
    yield Selection(list(matrix(sql, ("append",), {"turns": (100, 1000)})), local)
    reading = ("polling", "paging", "forks", "threads", "long")
    yield Selection(list(matrix(sql, reading, {})), local)
    cadences = {"turns": (200,), "snapshot_frequencies": (10, 100)}
    yield Selection(list(matrix(("sqlite",), ("agent",), cadences)), local)
    crowd = {"turns": (20,), "writers": (4,)}
    yield Selection(list(matrix(("postgres",), ("agent",), crowd)), local)
    large = {"turns": (20,), "payload_bytes": (4096,)}
    yield Selection(list(matrix(("sqlite",), ("agent",), large)), local)
