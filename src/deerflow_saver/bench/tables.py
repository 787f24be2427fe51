"""Tables of `bench ab`, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deerflow_saver.bench.aims import aim_of, verdicts
from deerflow_saver.bench.case import NEVER, SCENARIOS, SIDES, Case
from deerflow_saver.bench.figures import Ratio
from deerflow_saver.bench.pairs import Group, grouped
from deerflow_saver.bench.round_trips import ROUND_TRIPS

__all__ = ["ab_records", "ab_tables", "markdown"]

_ABOUT_SIZES = ("polling", "threads", "workers")
_READS = ("get_tuple", "get_delta_channel_history", "list", ROUND_TRIPS)


def ab_tables(rows: Iterable[Mapping[str, Any]], clock: str = "wall") -> str:
    """All sections: per scenario the times, then calls, memory, aims, and what failed.

    Args:
        rows: of `bench ab`.
        clock: `wall` or `cpu`.

    """
    groups = grouped(rows)
    sections = [
        _times(scenario, text, found, clock)
        for scenario, text in SCENARIOS.items()
        if (found := [g for g in groups if g.case.scenario == scenario and g.rows])
    ]
    sections += [_calls(groups), _sizes(groups), _aims(groups, clock), _failures(groups)]
    return "\n\n".join(section for section in sections if section) + "\n"


def ab_records(rows: Iterable[Mapping[str, Any]], clock: str = "wall") -> list[dict[str, Any]]:
    """One record per case, metric and side: percentiles, ratio and interval, failed cells."""
    return [
        {
            "backend": group.case.backend,
            "scenario": group.case.scenario,
            "turns": group.case.turns,
            "payload_bytes": group.case.payload_bytes,
            "snapshot_frequency": group.case.snapshot_frequency,
            "writers": group.case.writers,
            "depth": group.depth,
            "metric": metric,
            "side": side,
            **_numbers(group, side, metric, clock),
            "failed_cells": len(group.failed),
        }
        for group in grouped(rows)
        for metric in group.metrics
        for side in group.sides
    ]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 2) -> str:
    """A table; all columns but the first `left` are aligned right."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    lines = [header, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _times(scenario: str, text: str, groups: Sequence[Group], clock: str) -> str:
    sides = [s for s in SIDES if s != "raw" and any(s in g.sides for g in groups)]
    rows = []
    for group in groups:
        for metric in group.metrics:
            raw = group.samples("raw", metric, clock)
            shown = [_ratio(group.ratio(side, metric, clock)) for side in sides]
            aim = aim_of(group, metric)
            rows.append(
                [
                    _about(group.case),
                    f"{group.depth:,}",
                    metric,
                    f"{group.quantile('raw', metric, 0.5, clock):.2f}" if raw else "-",
                    f"{group.quantile('raw', metric, 0.95, clock):.2f}" if raw else "-",
                    *shown,
                    str(aim or ""),
                ]
            )
    header = ["saver", "writes", "step", "raw p50 ms", "p95", *(f"{s} ÷ raw" for s in sides), "aim"]
    return f"### {scenario}\n\n{text[0].upper()}{text[1:]}.\n\n" + markdown(header, rows, 3)


def _numbers(group: Group, side: str, metric: str, clock: str) -> dict[str, Any]:
    found = group.ratio(side, metric, clock)
    value, low, high = found or (None, None, None)
    return {
        "samples": len(group.samples(side, metric, clock)),
        f"{clock}_p50_ms": group.quantile(side, metric, 0.5, clock),
        f"{clock}_p95_ms": group.quantile(side, metric, 0.95, clock),
        "ratio": value,
        "ratio_low": low,
        "ratio_high": high,
    }


def _ratio(found: Ratio | None) -> str:
    return "-" if found is None else f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def _about(case: Case) -> str:
    """The saver, and every axis that is not where it usually is."""
    usual = 100 if case.scenario == "long" else NEVER
    moved = {
        "payload {} B": (case.payload_bytes, 128),
        "snapshot every {}": (case.snapshot_frequency, usual),
        "{} writers": (case.writers, 1),
        "guard {}": (case.guard, "off"),
    }
    named = [text.format(value) for text, (value, plain) in moved.items() if value != plain]
    return ", ".join([case.backend, *named])


def _calls(groups: Sequence[Group]) -> str:
    """Of each scenario and saver the longest threads: calls hardly depend on the length."""
    longest: dict[tuple[str, str], Group] = {}
    for group in groups:
        place = group.case.scenario, _about(group.case)
        if group.rows and (place not in longest or longest[place].depth < group.depth):
            longest[place] = group
    rows = [
        [
            scenario,
            f"{about}, {group.depth:,} writes",
            metric,
            *(_shown(group.calls(s, metric)) if s in group.sides else "" for s in SIDES),
        ]
        for (scenario, about), group in longest.items()
        for metric in group.metrics
    ]
    if not rows:
        return ""
    legend = (
        "`get_tuple` + histories + `list` that reach the saver; after the bar, Redis. Calls in "
        "another process are not counted (-)."
    )
    header = ["scenario", "case", "step", *SIDES]
    return f"### Calls\n\n{legend}\n\n" + markdown(header, rows, 3)


def _shown(calls: Mapping[str, float] | None) -> str:
    if calls is None:
        return "-"
    saver = " + ".join(f"{calls.get(name, 0):g}" for name in _READS[:3])
    return f"{saver} \\| {calls[ROUND_TRIPS]:g}" if ROUND_TRIPS in calls else saver


def _sizes(groups: Sequence[Group]) -> str:
    """What the scenarios that are about it show; the plots have the others' processes."""
    rows = [
        [group.case.scenario, f"{_about(group.case)}, {group.depth:,} writes", side, *values]
        for group in groups
        for side in group.sides
        if group.case.scenario in _ABOUT_SIZES
        for values in [_numbers_of(group, side)]
    ]
    if not rows:
        return ""
    header = ["scenario", "case", "side", "hits", "thread KiB", "Redis KiB", "process MiB"]
    return "### Hit ratio, bytes and memory\n\n" + markdown(header, rows, 3)


def _numbers_of(group: Group, side: str) -> list[str]:
    hits = group.value(side, "hit_ratio")
    return [
        "-" if hits is None else f"{hits:.3f}",
        _kib(group.value(side, "held_bytes")),
        _kib(group.value(side, "redis_bytes")),
        _kib(group.value(side, "peak_rss_bytes"), 2**20),
    ]


def _kib(value: float | None, unit: int = 2**10) -> str:
    return "-" if value is None else f"{value / unit:,.0f}"


def _aims(groups: Sequence[Group], clock: str) -> str:
    rows = [
        [
            aim.scenario,
            f"{_about(group.case)}, {group.depth:,} writes",
            f"{aim.what}, {aim.side}",
            str(aim),
            f"{value:.3g}",
            "yes" if aim.holds(value) else "**no**",
        ]
        for aim, group, value in verdicts(list(groups), clock)
    ]
    if not rows:
        return ""
    header = ["scenario", "case", "what", "aim", "measured", "reached"]
    return "### Aims\n\n" + markdown(header, rows, 3)


def _failures(groups: Sequence[Group]) -> str:
    failed = [row for group in groups for row in group.failed]
    if not failed:
        return f"Failed cells: 0 of {sum(len(group.rows) for group in groups)}."
    total = len(failed) + sum(len(group.rows) for group in groups)
    lines = [f"- `{Case.of(row)}`, {row['side']}: {row['error']}" for row in failed]
    return "\n".join([f"Failed cells: {len(failed)} of {total}.", "", *lines])
