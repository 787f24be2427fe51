"""How often each item occurs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

__all__ = ["tally"]

T = TypeVar("T")


def tally(items: Iterable[T]) -> dict[T, int]:
    """The items, each with its count: for a few, in less time than a `Counter` takes to be made."""
    counts: dict[T, int] = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts
