"""Every flow of the catalogue: legal ones pass unchanged, forks are refused and store nothing.

Each cell is run twice, first on the raw saver. That control says whether the flow really forks,
and what a legal one ends with. `GUARD_MATRIX=full` runs the whole matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deerflow_saver import WriteSlotTakenError
from guard.cells import Cell, play
from guard.matrix import database_cells, each_once, memory_cells
from guard.scenarios.catalogue import of
from guard.storage import Memory, Place, Postgres, Sqlite
from guard.verdicts import (
    assert_forks_as_without_a_guard,
    assert_in_line,
    assert_nothing_stored,
    assert_right,
    assert_same,
)
from support.upstream import keeps_every_update

LEGAL, FORKS = of("L"), of("F")


def cells(chosen: list[Cell]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("cell", chosen, ids=str)


def judge(cell: Cell, empty: Callable[[], Place]) -> None:
    control = play(cell, empty())
    guarded = play(cell, empty(), guard="refuse")
    assert_right(cell, control, guarded)


def test_the_catalogue_is_complete() -> None:
    assert [len(of(label)) for label in "LFR"] == [91, 27, 8]


@cells(memory_cells())
def test_a_flow_on_memory(cell: Cell) -> None:
    judge(cell, Memory)


@cells(database_cells(0))
def test_a_flow_on_sqlite(cell: Cell, tmp_path: Path) -> None:
    judge(cell, lambda: Sqlite(tmp_path))


@cells(database_cells(17))
def test_a_flow_on_postgres(cell: Cell, shared_postgres: str) -> None:
    judge(cell, lambda: Postgres(shared_postgres))


@cells(each_once(FORKS, start=3))
def test_without_the_guard_the_same_flows_fork(cell: Cell) -> None:
    control, off = play(cell, Memory()), play(cell, Memory(), guard="off")
    assert off.refusals == []
    assert off.forked == control.forked
    assert_forks_as_without_a_guard(control, off)


@cells(each_once(FORKS, start=5))
def test_observing_stores_a_fork_and_counts_it(cell: Cell) -> None:
    control, observing = play(cell, Memory()), play(cell, Memory(), guard="observe")
    assert observing.refusals == []
    assert (observing.observed > 0) == control.forked
    assert_forks_as_without_a_guard(control, observing)


@cells(each_once(LEGAL, start=5))
def test_observing_counts_no_legal_flow(cell: Cell) -> None:
    control, observing = play(cell, Memory()), play(cell, Memory(), guard="observe")
    if observing.observed and not keeps_every_update():
        # What is observed there is a write that such a release loses
        refused = play(cell, Memory(), guard="refuse").error
        assert refused is not None
        assert refused.startswith(WriteSlotTakenError.__name__)
    else:
        assert observing.observed == 0
    assert_same(control, observing)


@cells(each_once(FORKS, ("full",)))
def test_refuse_all_refuses_forks_of_full_threads(cell: Cell) -> None:
    control, guarded = play(cell, Memory()), play(cell, Memory(), guard="refuse-all")
    assert bool(guarded.refusals) == bool(control.findings)
    if guarded.refusals:
        assert not guarded.findings
        assert guarded.went_on is None


@cells(each_once(LEGAL, ("full",)))
def test_refuse_all_refuses_no_legal_flow_of_full_threads(cell: Cell) -> None:
    assert_same(play(cell, Memory()), play(cell, Memory(), guard="refuse-all"))


@cells(each_once(LEGAL, start=11))
def test_strictness_refuses_no_legal_flow(cell: Cell) -> None:
    assert_same(play(cell, Memory()), play(cell, Memory(), guard="refuse", strict=True))


@cells(each_once(FORKS, start=11))
def test_strictness_lets_a_refused_fork_store_no_row_at_all(cell: Cell) -> None:
    control = play(cell, Memory())
    guarded = play(cell, Memory(), guard="refuse", strict=True)
    assert bool(guarded.refusals) == control.forked
    if guarded.refusals:
        assert_nothing_stored(cell, guarded, strict=True)
        assert_in_line(guarded)
