"""Options that take several values, with commas between them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["choices", "parse_choice_csv", "parse_positive_int_csv", "positive", "positives"]

T = TypeVar("T")


def parse_positive_int_csv(value: str, *, option: str) -> tuple[int, ...]:
    """Whole numbers of at least 1; a duplicate is left out, and said so on the error output.

    Raises:
        ValueError: a value is empty, no number, or less than 1; the message names `option`.

    """
    numbers = []
    for item in _items(value, option):
        if not item.isascii() or not item.isdigit() or int(item) < 1:
            raise ValueError(f"{option}: {item!r} is no whole number of at least 1")
        numbers.append(int(item))
    return _once(numbers, f"{option}: ignored duplicate value(s)", "use --repetitions")


def parse_choice_csv(value: str, *, option: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Names out of `choices`.

    Raises:
        ValueError: a value is empty or none of them; the message names `option`.

    """
    names = _items(value, option)
    for name in names:
        if name not in choices:
            raise ValueError(f"{option}: {name!r} is none of {', '.join(choices)}")
    return _once(names, f"{option}: ignored duplicate value(s)", "use --repetitions")


def positives(option: str) -> Callable[[str], tuple[int, ...]]:
    """The argparse type of an option that takes whole numbers."""
    return _argument(lambda value: parse_positive_int_csv(value, option=option))


def choices(option: str, names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """The argparse type of an option that takes names."""
    return _argument(lambda value: parse_choice_csv(value, option=option, choices=names))


def positive(value: str) -> int:
    """The argparse type of one whole number of at least 1."""
    (number,) = positives("value")(value) if "," not in value else (0,)
    if not number:
        raise argparse.ArgumentTypeError(f"{value!r} is not one number")
    return number


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    def typed(value: str) -> T:
        try:
            return parse(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return typed


def _items(value: str, option: str) -> list[str]:
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise ValueError(f"{option}: {value!r} has an empty value")
    return items


def _once(values: Sequence[T], warning: str, advice: str) -> tuple[T, ...]:
    seen = dict.fromkeys(values)
    if len(seen) < len(values):
        again = dict.fromkeys(value for value in seen if values.count(value) > 1)
        named = ", ".join(map(str, again))
        print(f"{warning}: {named}; {advice} for repeated samples.", file=sys.stderr)
    return tuple(seen)
