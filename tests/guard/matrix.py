"""Which cells of the matrix a run covers: a slice that fits every change, or all of it.

The whole matrix, `GUARD_MATRIX=full`, is every scenario on every channel kind, durability, face
and latency on memory, and on the databases every scenario on every durability and face with
delta and mixed channels. The slice runs every scenario on every durability on memory, and turns
the other axes from cell to cell, so that each pair of values meets in a third of the scenarios
or more; and it runs every scenario once on each database. Nothing in it is random.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import product

from guard.cells import Cell
from guard.latency import LATENCIES
from guard.scenarios.catalogue import ALL
from guard.scenarios.env import Durability, Face
from guard.scenarios.kinds import KINDS, Kind
from guard.scenarios.registry import Scenario

__all__ = ["FULL", "database_cells", "each_once", "memory_cells"]

FULL = os.environ.get("GUARD_MATRIX") == "full"
DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")
FACES: tuple[Face, ...] = ("invoke", "ainvoke")
_DELTA: tuple[Kind, ...] = ("delta", "mixed")


def memory_cells() -> list[Cell]:
    """The cells to run on memory."""
    if FULL:
        axes = product(ALL, KINDS, DURABILITIES, FACES, LATENCIES)
        return [Cell(*axis, alike=bool(number % 2)) for number, axis in enumerate(axes)]
    return [*_quarter(_turning()), *each_once(ALL, ("full",))]


def _quarter(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Of each scenario every durability, the two kinds and the two faces in turn."""
    for number, cell in enumerate(cells):
        scenario, row = divmod(number, 12)
        kind, durability, face = row // 6, row // 2 % 3, row % 2
        turn = scenario + durability
        if (kind, face) == (turn % 2, turn // 2 % 2):
            yield cell


def database_cells(start: int) -> list[Cell]:
    """The cells to run on a database; `start` sets where the slices of two begin."""
    if FULL:
        return [*_turning(), *each_once(ALL, ("full",), start)]
    return each_once(ALL, start=start)


def _turning() -> Iterator[Cell]:
    axes = product(ALL, _DELTA, DURABILITIES, FACES)
    # Twelve cells a scenario: the row's number keeps the turns from falling into step with it
    for number, axis in enumerate(axes):
        turn = number + number // 12
        yield Cell(*axis, delay=LATENCIES[turn % 3], alike=bool(turn % 2))


def each_once(
    scenarios: Iterable[Scenario], kinds: tuple[Kind, ...] = _DELTA, start: int = 0
) -> list[Cell]:
    """One cell per scenario, each on the next combination of the other axes."""
    axes = list(product(kinds, DURABILITIES, FACES, LATENCIES))
    # A step without a common factor with the number of combinations visits them all
    return [
        Cell(scenario, *axes[(start + 7 * number) % len(axes)], alike=bool(number % 2))
        for number, scenario in enumerate(scenarios)
    ]
