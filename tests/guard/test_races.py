"""Processes on one thread: turns land whole and in a line, or are refused.

Without the guard the same races break the thread; that control shows that they are races.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from guard.matrix import FULL
from guard.processes import Report, audit, workers
from guard.racer import Spec
from guard.storage import Place

TURNS = 200 if FULL else 25
CASES = (
    "postgres", "postgres-pool", "async-postgres", "async-postgres-pool", "sqlite", "async-sqlite",
)  # fmt: skip
# Every way to open a saver, each durability on both kinds of server and on both faces
SLICE = [
    (case, durability, 2)
    for case, durability in zip(
        CASES, ("sync", "exit", "exit", "sync", "sync", "exit"), strict=True
    )
] + [("postgres", "exit", 4), ("sqlite", "exit", 4)]
RACES: list[Any] = list(product(CASES, ("sync", "exit"), (2, 4))) if FULL else SLICE


def race(place: Place, spec: Spec, processes: int) -> Report:
    with workers(*[spec] * processes) as racing:
        for number, worker in enumerate(racing):
            worker.tell(*(f"{number}-{turn}" for turn in range(TURNS)))
        answers = [answer for worker in racing for answer in worker.answer()]
    assert len(answers) == processes * TURNS
    return audit(place, answers)


@pytest.mark.timeout(1200 if FULL else 180)
@pytest.mark.parametrize(("case", "durability", "processes"), RACES)
def test_turns_of_several_processes_land_whole_or_are_refused(
    case: str, durability: Any, processes: int, place_of: Any
) -> None:
    place, spec = place_of(case, durability)
    report = race(place, spec, processes)
    assert report.problems() == []
    assert report.accepted


@pytest.mark.timeout(1200 if FULL else 180)
@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("case", ["postgres", "sqlite"])
def test_without_the_guard_the_same_race_breaks_the_thread(
    case: str, durability: Any, place_of: Any
) -> None:
    place, spec = place_of(case, durability)
    report = race(place, replace(spec, guard="off"), 2)
    assert report.problems() != []
    assert report.refused == []


def take_turns(place: Place, ahead: Spec, behind: Spec) -> Report:
    answers = []
    with workers(ahead, behind) as hosts:
        for number in range(8):
            host = hosts[number % 2]
            host.tell(f"{number}-turn")
            answers += host.answer()
    return audit(place, answers)


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("case", ["postgres", "async-postgres", "sqlite", "async-sqlite"])
def test_hosts_whose_clocks_differ_lose_no_turn(case: str, durability: Any, place_of: Any) -> None:
    place, spec = place_of(case, durability)
    report = take_turns(place, replace(spec, clock_ahead=0.5), spec)
    assert report.problems() == []
    assert report.refused == []


@pytest.mark.parametrize("case", ["postgres", "sqlite"])
def test_without_the_guard_a_host_that_is_behind_loses_its_turns(case: str, place_of: Any) -> None:
    place, spec = place_of(case, "sync")
    spec = replace(spec, guard="off")
    report = take_turns(place, replace(spec, clock_ahead=0.5), spec)
    assert any("accepted but not in the thread" in problem for problem in report.problems())
