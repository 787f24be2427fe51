"""Options that take several values."""

from __future__ import annotations

import pytest

from deerflow_saver.bench.arguments import parse_choice_csv, parse_positive_int_csv


@pytest.mark.parametrize("value", ["", ",1", "1,", "1,,2", "x", "1.5", "0", "-1", "²"])
def test_a_list_of_numbers_holds_nothing_but_positive_numbers(value: str) -> None:
    with pytest.raises(ValueError, match="--turns"):
        parse_positive_int_csv(value, option="--turns")


def test_duplicate_numbers_are_left_out_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_positive_int_csv("10, 2,10", option="--turns") == (10, 2)
    said = capsys.readouterr().err
    expected = "--turns: ignored duplicate value(s): 10; use --repetitions for repeated samples.\n"
    assert said == expected


def test_numbers_without_duplicates_warn_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_positive_int_csv("3,1,2", option="--turns") == (3, 1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("value", ["", "raw,", "raw,unknown"])
def test_a_list_of_names_holds_nothing_but_choices(value: str) -> None:
    with pytest.raises(ValueError, match="--sides"):
        parse_choice_csv(value, option="--sides", choices=("raw", "memory"))


def test_duplicate_names_are_left_out_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    names = parse_choice_csv("memory,raw,memory", option="--sides", choices=("raw", "memory"))
    assert names == ("memory", "raw")
    assert "--sides: ignored duplicate value(s): memory" in capsys.readouterr().err
