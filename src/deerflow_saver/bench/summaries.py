"""Summaries of `bench channels`: full beside delta, medians over the repetitions of both."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from deerflow_saver.bench.derived import with_derived
from deerflow_saver.bench.tables import markdown

__all__ = ["CHANNELS", "PRODUCTION", "Kind", "as_csv", "summarised", "summary_tables"]

Row = Mapping[str, Any]
_WHOLE = 100
"""From here on a table shows no fractions."""
NOTHING = "(no comparable full/delta pairs)"


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the two benchmarks.

    Attributes:
        benchmark: as its rows call it.
        title: as the page calls it.
        group: the fields of a group; the cadence is the delta row's.
        pair: the fields that a full and a delta row have in common, beside the input.
        metrics: shown where none are asked for.
        discovered: endings of further metrics that every row may have.

    """

    benchmark: str
    title: str
    group: tuple[str, ...]
    pair: tuple[str, ...]
    metrics: tuple[str, ...]
    discovered: tuple[str, ...] = ()


CHANNELS = Kind(
    "checkpoint_channels",
    "Full and delta channels",
    ("backend", "scenario", "update_count", "payload_bytes", "snapshot_frequency"),
    ("backend", "scenario", "update_count", "payload_bytes", "repetition", "history_cache"),
    (
        "write_total_ms", "write_p50_ms", "write_p95_ms", "write_last_window_ms", "warm_read_ms",
        "cold_read_ms", "logical_checkpoint_bytes", "logical_write_bytes", "durable_db_bytes",
        "reducer_replay_ms", "peak_rss_bytes",
    ),
)  # fmt: skip
PRODUCTION = Kind(
    "checkpoint_production",
    "Conversations over HTTP",
    ("turns", "payload_bytes", "snapshot_frequency"),
    ("turns", "payload_bytes", "repetition", "history_cache"),
    (
        "run_turn_p50_ms", "run_turn_p95_ms", "checkpoint_write_p50_ms", "checkpoint_write_p95_ms",
        "state_cold_ms", "state_warm_p50_ms", "db_bytes", "peak_rss_bytes",
        "snapshot_write_spike", "checkpoint_write_share", "cache_effect_ms",
    ),
    ("_cold_ms", "_warm_p50_ms"),
)  # fmt: skip


def summarised(
    rows: Iterable[Row], kind: Kind, metrics: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """One record per group: medians of both modes, their ratio, and how many rows failed.

    A full row stands beside the delta rows of every cadence. Rows of different inputs never
    meet, whatever their repetitions. A metric counts pairs in which both modes have a number.
    """
    usable = _without_profiled(
        [row for row in rows if row.get("benchmark") == kind.benchmark], kind
    )
    full = {_place(row, kind): row for row in usable if row["mode"] == "full" and row["success"]}
    chosen = list(metrics) or [*kind.metrics, *_discovered(usable, kind)]
    found = []
    for group in _groups(usable, kind):
        deltas = [row for row in usable if _is_of(row, group, kind)]
        pairs = [
            (with_derived(full[place]), with_derived(row))
            for row in deltas
            if row["success"] and (place := _place(row, kind)) in full
        ]
        failed = sum(not row["success"] for row in deltas) + _failed_full(usable, group, kind)
        if pairs or failed:
            record = dict(zip(kind.group, group, strict=True))
            record |= {"paired_repetitions": len(pairs), "failed_rows": failed}
            found.append(record | _medians(pairs, chosen))
    return found


def summary_tables(rows: Sequence[Row], metrics: Sequence[str] = ()) -> str:
    """Both benchmarks' summaries, as far as there are rows of them."""
    sections = []
    for kind in (CHANNELS, PRODUCTION):
        records = summarised(rows, kind, metrics)
        if records:
            sections.append(f"### {kind.title}\n\n{_table(records, kind)}")
    return "\n\n".join(sections) + "\n" if sections else f"{NOTHING}\n"


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """The records, one a line, under the names of all columns."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _without_profiled(rows: list[Row], kind: Kind) -> list[Row]:
    kept = [row for row in rows if not row.get("profiled")]
    if len(kept) < len(rows):
        print(
            f"Skipping {len(rows) - len(kept)} profiled row(s) of {kind.benchmark}; a profiler "
            "slows modes differently.",
            file=sys.stderr,
        )
    return kept


def _place(row: Row, kind: Kind) -> tuple[Any, ...]:
    return row.get("input", 0), *(row[name] for name in kind.pair)


def _groups(rows: Iterable[Row], kind: Kind) -> list[tuple[Any, ...]]:
    """The delta rows' groups; numbers by size, not as text."""
    return sorted({tuple(row[n] for n in kind.group) for row in rows if row["mode"] == "delta"})


def _is_of(row: Row, group: tuple[Any, ...], kind: Kind) -> bool:
    return row["mode"] == "delta" and tuple(row[name] for name in kind.group) == group


def _failed_full(rows: Iterable[Row], group: tuple[Any, ...], kind: Kind) -> int:
    """Failed full rows, which are missing beside every cadence."""
    shared = dict(zip(kind.group, group, strict=True))
    del shared["snapshot_frequency"]
    return sum(
        row["mode"] == "full"
        and not row["success"]
        and all(row[name] == value for name, value in shared.items())
        for row in rows
    )


def _discovered(rows: Iterable[Row], kind: Kind) -> list[str]:
    """`history_limit_<n>_…`, by their n."""
    names = {
        name
        for row in rows
        for name in row
        if name.startswith("history_limit_") and name.endswith(kind.discovered or ("\0",))
    }
    return sorted(names, key=lambda name: (int(name.split("_")[2]), name))


def _medians(pairs: Sequence[tuple[Row, Row]], metrics: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in metrics:
        both = [
            (full[metric], delta[metric])
            for full, delta in pairs
            if _is_number(full.get(metric)) and _is_number(delta.get(metric))
        ]
        if both:
            full, delta = (median(side) for side in zip(*both, strict=True))
            found |= {f"full_{metric}": full, f"delta_{metric}": delta}
            found[f"ratio_{metric}"] = round(delta / full, 6) if full else None
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table(records: Sequence[Mapping[str, Any]], kind: Kind) -> str:
    """A line per group; a cell is the median of full and that of delta."""
    metrics = list(
        dict.fromkeys(name[5:] for r in records for name in r if name.startswith("full_"))
    )
    names = [*kind.group, *metrics, "pairs", "failed"]
    rows = [
        [
            *(str(record[name]) for name in kind.group),
            *(_both(record, metric) for metric in metrics),
            str(record["paired_repetitions"]),
            str(record["failed_rows"]),
        ]
        for record in records
    ]
    legend = "Full state → delta channels, medians."
    header = [name.replace("_", " ") for name in names]
    return f"{legend}\n\n" + markdown(header, rows, len(kind.group))


def _both(record: Mapping[str, Any], metric: str) -> str:
    if f"full_{metric}" not in record:
        return "-"
    return " → ".join(_short(record[f"{mode}_{metric}"]) for mode in ("full", "delta"))


def _short(value: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * unit:
            return f"{value / unit:.0f} {letter}"
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:.3g}"
