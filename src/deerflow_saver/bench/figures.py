"""Medians, percentiles, and ratios with their uncertainty."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

__all__ = ["Ratio", "percentile", "ratio", "window_median"]

_RESAMPLES = 1000
_CONFIDENCE = 0.95


class Ratio(NamedTuple):
    """A ratio of medians, and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, interpolated; 0.0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def window_median(values: Sequence[float], window: str) -> float:
    """The median of the `first`, `middle` or `last` tenth of `values`, one of them at least."""
    if not values:
        return 0.0
    width = max(1, len(values) // 10)
    start = {"first": 0, "middle": (len(values) - width) // 2, "last": len(values) - width}[window]
    return median(values[start : start + width])


def ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int = 1) -> Ratio | None:
    """Median over median, with a bootstrap interval; None where there is nothing to divide.

    The i-th samples of both belong together (cells run in lockstep), and are drawn together.
    """
    length = min(len(numerator), len(denominator))
    if not length or not median(denominator[:length]):
        return None
    chance = random.Random(seed)  # noqa: S311 - the same table from the same rows
    pairs = list(zip(numerator, denominator, strict=False))
    found = sorted(_of(chance.choices(pairs, k=length)) for _ in range(_RESAMPLES))
    outside = (1 - _CONFIDENCE) / 2
    return Ratio(_of(pairs), percentile(found, outside), percentile(found, 1 - outside))


def _of(pairs: Sequence[tuple[float, float]]) -> float:
    return median(p[0] for p in pairs) / (median(p[1] for p in pairs) or 1e-9)
