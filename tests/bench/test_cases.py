"""Which cases a run has, in which order, and which are too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deerflow_saver.bench import case as cases
from deerflow_saver.bench.case import NEVER, Case, matrix
from deerflow_saver.bench.channels.cases import ChannelCase, channel_matrix
from deerflow_saver.bench.channels.cases import capped as channels_capped
from deerflow_saver.bench.channels.production_cases import ProductionCase, production_matrix
from deerflow_saver.bench.selections import quick, standard

PRODUCTION: dict[str, Any] = {"seed": 1, "history_limits": (10,), "read_repetitions": 1}


def test_axes_that_are_not_given_have_the_scenarios_defaults() -> None:
    found = list(matrix(("sqlite",), ("agent", "long"), {}))
    assert [(c.scenario, c.turns, c.snapshot_frequency) for c in found] == [
        ("agent", 2, NEVER),
        ("agent", 20, NEVER),
        ("agent", 200, NEVER),
        ("long", 20_000, 100),
    ]


def test_axes_multiply_and_writers_concern_only_who_writes() -> None:
    axes = {"turns": (1, 2), "writers": (1, 3), "snapshot_frequencies": (5,)}
    found = list(matrix(("sqlite",), ("append", "polling"), axes, repetitions=2, rounds=4))
    assert [(c.scenario, c.writers, c.turns) for c in found if c.repetition == 1] == [
        ("append", 1, 1),
        ("append", 1, 2),
        ("append", 3, 1),
        ("append", 3, 2),
        ("polling", 1, 1),
        ("polling", 1, 2),
    ]
    assert len(found) == 12
    assert {(c.snapshot_frequency, c.rounds) for c in found} == {(5, 4)}


def test_two_workers_need_a_database_both_can_open() -> None:
    assert list(matrix(("memory",), ("workers",), {})) == []


def test_a_case_is_found_again_in_its_row() -> None:
    case = Case("sqlite", "agent", 3, repetition=2)
    assert Case.of({**case.as_dict(), "side": "raw", "more": 1}) == case


def test_repetitions_are_of_one_group() -> None:
    one, two = (Case("sqlite", "agent", 3, repetition=number) for number in (1, 2))
    assert one.group == two.group != Case("sqlite", "agent", 4).group


def test_the_estimate_counts_every_snapshot_whole() -> None:
    case = Case("sqlite", "forks", 100, payload_bytes=10, snapshot_frequency=50)
    assert case.estimated_bytes == 10 * (100 + 50 + 100)


def test_cases_over_the_cap_are_left_out_whole() -> None:
    small, large = (Case("sqlite", "append", 10, payload_bytes=size) for size in (1, 10**9))
    assert cases.capped([small, large], 1 << 20) == ([small], [large])
    assert cases.capped([small, large], None) == ([small, large], [])


def test_the_standard_selection_has_every_scenario_and_every_axis() -> None:
    found = [case for chosen in standard() for case in chosen.cases]
    assert {case.scenario for case in found} == set(cases.SCENARIOS)
    assert {case.backend for case in found} == {"memory", "sqlite", "postgres"}
    for name in ("turns", "payload_bytes", "snapshot_frequency", "writers"):
        assert len({getattr(case, name) for case in found}) > 1, name


def test_the_quick_selection_has_every_scenario_and_every_built_in_backend() -> None:
    found = [case for chosen in quick() for case in chosen.cases]
    assert {case.scenario for case in found} == set(cases.SCENARIOS)
    assert {case.backend for case in found} == set(cases.BACKENDS) - {"own"}


# -- channels


def modes(updates: Sequence[int], repetitions: int) -> list[tuple[int, int, str]]:
    found = channel_matrix(
        ("full", "delta"), ("memory",), updates, (8,), (10,), repetitions=repetitions, seed=1
    )
    return [(case.repetition, case.update_count, case.mode) for case in found]


def test_the_mode_that_goes_first_changes_with_every_pair() -> None:
    assert modes((10, 100), 2) == [
        (1, 10, "delta"),
        (1, 10, "full"),
        (1, 100, "full"),
        (1, 100, "delta"),
        (2, 10, "full"),
        (2, 10, "delta"),
        (2, 100, "delta"),
        (2, 100, "full"),
    ]


def test_full_runs_once_for_all_cadences() -> None:
    found = list(
        channel_matrix(("full", "delta"), ("memory",), (10,), (8,), (5, 7), repetitions=1, seed=1)
    )
    assert [(c.mode, c.snapshot_frequency) for c in found] == [
        ("delta", 5),
        ("delta", 7),
        ("full", 10),
    ]
    assert len({case.pair for case in found}) == 1


def test_a_full_case_over_the_cap_takes_every_cadence_of_its_pair_along() -> None:
    found = list(
        channel_matrix(
            ("full", "delta"), ("memory",), (10, 1000), (8,), (5, 7), repetitions=1, seed=1
        )
    )
    kept, over = channels_capped(found, 8 * 1000 * 1001 // 2 - 1)
    assert {case.update_count for case in kept} == {10}
    assert [(c.mode, c.snapshot_frequency) for c in over] == [
        ("full", 10),
        ("delta", 5),
        ("delta", 7),
    ]
    assert channels_capped(found, 8 * 1000 * 1001 // 2) == (found, [])


def test_without_full_state_nothing_is_over_the_cap() -> None:
    found = list(
        channel_matrix(("delta",), ("memory",), (1000,), (8,), (5,), repetitions=1, seed=1)
    )
    assert channels_capped(found, 1) == (found, [])


@pytest.mark.parametrize(
    "wrong",
    [{"mode": "half"}, {"backend": "x"}, {"update_count": 0}, {"history_cache": "redis"}],
    ids=str,
)
def test_a_channel_case_is_refused_where_it_is_none(wrong: dict[str, Any]) -> None:
    usual = {
        "mode": "full",
        "backend": "memory",
        "update_count": 1,
        "payload_bytes": 1,
        "repetition": 1,
        "seed": 1,
    }
    ChannelCase(**usual)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChannelCase(**{**usual, **wrong})


def test_production_flips_the_modes_on_every_group() -> None:
    found = production_matrix(
        ("full", "delta"), (10, 20, 30), (8,), (5, 7), repetitions=2, **PRODUCTION
    )
    firsts = {(c.repetition, c.turns): c.mode for c in reversed(list(found))}
    ordered = [firsts[repetition, turns] for repetition in (1, 2) for turns in (10, 20, 30)]
    assert ordered == ["full", "delta", "full", "delta", "full", "delta"]


@pytest.mark.parametrize(
    ("mode", "turns", "frequency", "said"),
    [
        ("full", 2, None, "turns must exceed the 2-turn warm-up"),
        ("full", 3, 10, "snapshot_frequency is a delta-only axis"),
        ("delta", 3, None, "positive snapshot_frequency"),
        ("delta", 3, 0, "positive snapshot_frequency"),
    ],
)
def test_a_production_case_is_refused_where_it_is_none(
    mode: str, turns: int, frequency: int | None, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        ProductionCase(mode, turns, 8, 1, snapshot_frequency=frequency, **PRODUCTION)


def test_pages_beyond_what_the_router_gives_are_asked_for_once() -> None:
    limits = {**PRODUCTION, "history_limits": (10, 100, 200, 300)}
    assert ProductionCase("full", 3, 8, 1, **limits).effective_limits == (10, 100)
