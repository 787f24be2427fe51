"""Which rows the reports can read: those of a known benchmark that lack no field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from deerflow_saver.bench.case import Case
from deerflow_saver.bench.summaries import CHANNELS, PRODUCTION

__all__ = ["is_readable", "without_rows"]

Row = Mapping[str, Any]
_AB = {"side", "success", *(field.name for field in fields(Case))}
_MODES = {
    kind.benchmark: {"mode", "success", *kind.group, *kind.pair} for kind in (CHANNELS, PRODUCTION)
}


def is_readable(row: Row) -> bool:
    """Whether a row is one of `ab` or `channels`, and no field is missing that they all have."""
    benchmark = row.get("benchmark")
    if benchmark == "ab":
        measured = {"metrics", "depth"} if row.get("success") else {"error"}
        return row.keys() >= _AB | measured
    needed = _MODES.get(str(benchmark))
    full = {"snapshot_frequency"} if row.get("mode") == "full" else set()  # a delta-only axis
    return needed is not None and row.keys() >= needed - full


def without_rows(paths: Sequence[Path], rows: Iterable[Row]) -> list[Path]:
    """The files that none of the rows comes from, by their `input`."""
    there = {row["input"] for row in rows}
    return [path for index, path in enumerate(paths) if index not in there]
