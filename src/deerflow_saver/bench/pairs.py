"""Rows of `bench ab`, put together again: each side of a case beside the raw one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from deerflow_saver.bench.case import SIDES, Case
from deerflow_saver.bench.figures import Ratio, percentile, ratio

__all__ = ["Group", "grouped"]

Row = Mapping[str, Any]
_NOT_IN_GROUP = {"repetition", "seed"}


@dataclass(slots=True)
class Group:
    """All repetitions of one case; a row is found by its side, its file and its repetition."""

    case: Case
    rows: dict[tuple[str, Any], Row] = field(default_factory=dict)
    failed: list[Row] = field(default_factory=list)

    @property
    def sides(self) -> list[str]:
        """The sides that succeeded at least once, in the usual order."""
        there = {side for side, _ in self.rows}
        return [side for side in SIDES if side in there]

    @property
    def metrics(self) -> list[str]:
        """What was measured, in the order in which it was."""
        names = [name for row in self.rows.values() for name in row["metrics"]]
        return list(dict.fromkeys(names))

    @property
    def depth(self) -> int:
        """Writes that a walk from the head collects."""
        depths = [row["depth"] for row in self.rows.values()]
        return round(mean(depths)) if depths else 0

    def samples(self, side: str, metric: str, clock: str = "wall") -> list[float]:
        """Milliseconds, over all repetitions."""
        return [ms for _, row in self._of(side) for ms in _samples(row, metric, clock)]

    def quantile(self, side: str, metric: str, share: float, clock: str = "wall") -> float:
        """Milliseconds below which that share of the samples lies."""
        return percentile(self.samples(side, metric, clock), share)

    def ratio(self, side: str, metric: str, clock: str = "wall") -> Ratio | None:
        """The side over the raw saver, from repetitions in which both succeeded."""
        mine: list[float] = []
        raws: list[float] = []
        for place, row in self._of(side):
            raw = self.rows.get(("raw", place))
            if raw is not None:
                pairs = zip(
                    _samples(row, metric, clock), _samples(raw, metric, clock), strict=False
                )
                for own, other in pairs:
                    mine.append(own)
                    raws.append(other)
        return ratio(mine, raws)

    def calls(self, side: str, metric: str) -> dict[str, float] | None:
        """Calls that reached the raw saver, and Redis, per sample; None if nobody counted."""
        found = [row["metrics"].get(metric, {}).get("calls") for _, row in self._of(side)]
        found = [calls for calls in found if calls is not None]
        if not found:
            return None
        names = dict.fromkeys(name for calls in found for name in calls)
        return {name: round(mean(calls.get(name, 0) for calls in found), 2) for name in names}

    def value(self, side: str, name: str) -> float | None:
        """The mean of a numeric field of the rows; None where no row has it."""
        found = [row[name] for _, row in self._of(side) if _is_number(row.get(name))]
        return mean(found) if found else None

    def _of(self, side: str) -> list[tuple[Any, Row]]:
        return [(place, row) for (name, place), row in self.rows.items() if name == side]


def grouped(rows: Iterable[Row]) -> list[Group]:
    """The groups of all rows that may be used, in the order of their first row.

    Profiled rows are left out: the profiler is what they would tell of.
    """
    groups: dict[tuple[Any, ...], Group] = {}
    for row in rows:
        if row.get("profiled"):
            continue
        case = Case.of(row)
        group = groups.setdefault(case.group, Group(case))
        if row["success"]:
            group.rows[row["side"], (row.get("input", 0), case.repetition)] = row
        else:
            group.failed.append(row)
    return list(groups.values())


def _samples(row: Row, metric: str, clock: str) -> Sequence[float]:
    found: Sequence[float] = row["metrics"].get(metric, {}).get(f"{clock}_ms", ())
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
