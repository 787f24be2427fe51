"""Tables and plots of results: medians, ratios with bootstrap intervals, failed cells counted.

Takes the JSONL files that `ab` and `channels` wrote, in any mixture. Exits with 1 if there is
nothing to report, a line cannot be read, or a file has no rows of theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deerflow_saver.bench.page import write_between
from deerflow_saver.bench.pairs import grouped
from deerflow_saver.bench.plots import write_plots
from deerflow_saver.bench.readable import is_readable, without_rows
from deerflow_saver.bench.rows import load
from deerflow_saver.bench.summaries import CHANNELS, PRODUCTION, as_csv, summarised, summary_tables
from deerflow_saver.bench.tables import ab_records, ab_tables
from deerflow_saver.cli.errors import UsageError

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "tables and plots of results"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand's options."""
    parser.add_argument("inputs", nargs="+", type=Path, metavar="FILE", help="rows, as JSONL")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the tables between a page's markers"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw plots, as PNG and SVG")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="which time of `ab` to show (%(default)s)",
    )
    parser.add_argument("--metrics", metavar="A,B", help="of `channels`, instead of the usual ones")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="records instead of tables")
    forms.add_argument("--csv", action="store_true", help="records instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Report; 1 if there is nothing to."""
    try:
        rows = load(arguments.inputs)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    found = len(rows)
    rows = [row for row in rows if is_readable(row)]
    empty = without_rows(arguments.inputs, rows)
    for path in empty:
        print(f"{path}: holds no row that `bench ab` or `channels` wrote", file=sys.stderr)
    if empty:
        return 1
    if len(rows) < found:
        print(f"Skipping {found - len(rows)} row(s) of another origin.", file=sys.stderr)
    metrics = tuple(arguments.metrics.split(",")) if arguments.metrics else ()
    ab = [row for row in rows if row.get("benchmark") == "ab"]
    records = _records(rows, ab, metrics, arguments.clock)
    plots = write_plots(grouped(ab), arguments.plots, arguments.clock) if arguments.plots else []
    if arguments.json:
        print(json.dumps(records, indent=2))
    elif arguments.csv:
        print(as_csv(records), end="")
    else:
        _show(rows, ab, metrics, arguments, plots)
    return 0 if records else 1


def _records(
    rows: Sequence[Any], ab: Sequence[Any], metrics: Sequence[str], clock: str
) -> list[dict[str, Any]]:
    channels = [r for kind in (CHANNELS, PRODUCTION) for r in summarised(rows, kind, metrics)]
    return [*ab_records(ab, clock), *channels]


def _show(
    rows: Sequence[Any],
    ab: Sequence[Any],
    metrics: Sequence[str],
    arguments: argparse.Namespace,
    plots: Sequence[Path],
) -> None:
    parts = [_origin(rows)]
    if ab:
        parts.append(ab_tables(ab, arguments.clock))
    if len(ab) < len(rows):
        parts.append(summary_tables(rows, metrics))
    page = arguments.write
    if plots:
        place = page.parent if page else Path.cwd()
        links = [f"![{p.stem}]({Path(os.path.relpath(p, place)).as_posix()})" for p in plots]
        parts.append("### Plots\n\n" + "\n".join(links))
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    if page is None:
        print(text)
        return
    try:
        write_between(page, text)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error


def _origin(rows: Sequence[Any]) -> str:
    """On what was measured: every distinct value, as rows may come from several runs."""
    shown = []
    for label, names in (
        ("commit", ("git_sha",)),
        ("LangGraph", ("langgraph_version", "langgraph_checkpoint_version")),
        ("Python", ("python_version",)),
        ("on", ("platform",)),
        ("CPUs", ("cpus",)),
    ):
        values = dict.fromkeys(
            " / ".join(str(row.get(name)) for name in names) for row in rows if names[0] in row
        )
        shown.append(f"{label} {', '.join(values)}")
    return f"Measured with {'; '.join(shown)}." if rows else ""
