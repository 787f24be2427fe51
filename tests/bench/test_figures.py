"""Medians, percentiles, ratios, and the page they go to."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deerflow_saver.bench.channels.intervals import union_ms
from deerflow_saver.bench.derived import with_derived
from deerflow_saver.bench.figures import percentile, ratio, window_median
from deerflow_saver.bench.page import BEGIN, END, write_between


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.5), (0.95, 3.85), (1.0, 4.0)])
def test_percentiles_are_interpolated(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(expected)


def test_the_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.5) == 0.0


def test_windows_are_tenths_and_never_empty() -> None:
    values = [float(number) for number in range(30)]
    found = [window_median(values, window) for window in ("first", "middle", "last")]
    assert found == [1.0, 14.0, 28.0]
    assert [window_median([7.0], window) for window in ("first", "middle", "last")] == [7.0] * 3


def test_a_ratio_comes_with_an_interval_around_it() -> None:
    chance = random.Random(3)
    raw = [chance.uniform(9, 11) for _ in range(40)]
    wrapped = [value * chance.uniform(0.4, 0.6) for value in raw]
    found = ratio(wrapped, raw)
    assert found is not None
    assert found.low <= found.value <= found.high
    assert 0.4 < found.low < found.high < 0.6


def test_the_interval_grows_with_the_spread() -> None:
    calm = ratio([5.0, 5.1, 4.9, 5.0, 5.0], [10.0] * 5)
    wild = ratio([1.0, 9.0, 5.0, 2.0, 8.0], [10.0] * 5)
    assert calm is not None
    assert wild is not None
    assert wild.high - wild.low > calm.high - calm.low


def test_samples_of_one_round_are_drawn_together() -> None:
    # The thread grows from round to round, and so do both times: their quotient does not.
    raw = [float(number) for number in range(1, 60)]
    found = ratio([value * 0.5 for value in raw], raw)
    assert found == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("raw", [[], [0.0, 0.0]])
def test_there_is_no_ratio_to_nothing(raw: list[float]) -> None:
    assert ratio([1.0, 2.0], raw) is None


def test_overlapping_intervals_count_once() -> None:
    assert union_ms([(2.0, 3.0), (0.0, 1.0), (0.5, 1.5), (2.2, 2.4)]) == 2500.0
    assert union_ms([]) == 0.0


def test_derived_figures_need_their_denominator() -> None:
    row = {
        "checkpoint_write_p50_ms": 2.0,
        "checkpoint_write_p99_ms": 8.0,
        "run_turn_p50_ms": 4.0,
        "state_cold_ms": 5.0,
        "state_warm_p50_ms": 1.0,
    }
    found = with_derived(row)
    assert found["snapshot_write_spike"] == 4.0
    assert found["checkpoint_write_share"] == 0.5
    assert found["cache_effect_ms"] == 4.0
    without = with_derived({**row, "checkpoint_write_p50_ms": 0.0})
    assert "snapshot_write_spike" not in without
    assert without["checkpoint_write_share"] == 0.0


def test_the_page_keeps_what_stands_around_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between(page, "new\n")
    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    write_between(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["", BEGIN, f"{END} {BEGIN}"])
def test_a_page_without_its_markers_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match="markers"):
        write_between(page, "new")
    assert page.read_text() == text
