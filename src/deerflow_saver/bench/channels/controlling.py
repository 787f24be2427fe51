"""Run cases of `bench channels`, pair by pair; rows are kept as soon as their pair is compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from deerflow_saver.bench.channels.cases import ChannelCase
from deerflow_saver.bench.channels.production_cases import ProductionCase
from deerflow_saver.bench.child import Child
from deerflow_saver.bench.errors import ChildError
from deerflow_saver.bench.rows import append, load, provenance, resolve_git_sha

__all__ = ["MISMATCH", "cell_name", "cross_validated", "left_over", "run_cases"]

MISMATCH = "cross-mode materialized state mismatch"
_DIGESTS = {
    "channels": ("actual_message_count", "content_sha256"),
    "production": (
        "message_count", "seed_content_sha256", "state_wire_sha256", "history_wire_sha256",
    ),
}  # fmt: skip

AnyCase = ChannelCase | ProductionCase


def run_cases(
    benchmark: str,
    cases: Sequence[AnyCase],
    *,
    timeout: float,
    profiles: Path | None,
    output: Path | None,
    tell: Callable[[AnyCase], None],
) -> list[dict[str, Any]]:
    """Measure every case in a process of its own; the rows.

    Args:
        benchmark: `channels` or `production`, which is also the worker's role.
        cases: what to measure, those of a pair together.
        timeout: seconds for each.
        profiles: a folder for profiles; profiled rows are marked, and no report uses them.
        output: the file rows are appended to, a pair at a time.
        tell: called before each case.

    """
    about = provenance(f"checkpoint_{benchmark}", resolve_git_sha())
    if profiles is not None:
        profiles.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for _, pair in groupby(cases, key=lambda case: case.pair):
        found = list(_measured(benchmark, list(pair), about, timeout, profiles, tell))
        cross_validated(found, _DIGESTS[benchmark])
        if output is not None:
            append(output, found)
        rows += found
    return rows


def left_over(cases: Sequence[AnyCase], output: Path) -> list[AnyCase]:
    """The cases of all pairs that `output` does not hold whole: succeeded, and not profiled."""
    if not output.exists():
        return list(cases)
    rows = [row for row in load([output]) if row.get("success") and not row.get("profiled")]
    there = {row.get("cell") for row in rows}
    open_pairs = {case.pair for case in cases if cell_name(case) not in there}
    return [case for case in cases if case.pair in open_pairs]


def cell_name(case: AnyCase) -> str:
    """What tells a case from all others, of either benchmark."""
    named = {"kind": type(case).__name__, **case.as_dict()}
    return json.dumps(named, separators=(",", ":"))


def cross_validated(rows: Sequence[dict[str, Any]], digests: Sequence[str]) -> None:
    """Fail every row of a pair whose rows, of either mode and any cadence, end differently."""
    done = [row for row in rows if row["success"]]
    if len({tuple(row[name] for name in digests) for row in done}) > 1:
        for row in done:
            row["success"], row["error"] = False, MISMATCH


def _measured(
    benchmark: str,
    pair: Sequence[AnyCase],
    about: dict[str, Any],
    timeout: float,
    profiles: Path | None,
    tell: Callable[[AnyCase], None],
) -> Iterator[dict[str, Any]]:
    for case in pair:
        tell(case)
        profile = None if profiles is None else str(profiles / f"{case.name}.prof")
        named = {"cell": cell_name(case), **case.as_dict()}
        row = {**about, **named, "profiled": profile is not None}
        child = Child(benchmark, case, timeout=timeout, profile=profile)
        try:
            child.answer()
            row |= child.finish({}) | {"success": True, "error": None}
        except ChildError as error:
            row |= {"success": False, "error": str(error)}
        finally:
            child.close()
        yield row | {"child_process_ms": child.lifetime_ms}
