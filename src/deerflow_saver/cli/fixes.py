"""Known upstream defects: list them, probe for them here, or measure past releases."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten

from deerflow_saver import fixes
from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.cli.postgres import VARIABLE, fresh_database, server
from deerflow_saver.doctor.defects import unanswered
from deerflow_saver.errors import StagingError
from deerflow_saver.staging import compatibility
from deerflow_saver.staging.matrix import Column, differences, measured
from deerflow_saver.staging.releases import known

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "known upstream defects: list, probe, or measure past releases"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("list", "what is known, without looking"),
        ("status", "what the probes see here"),
        ("matrix", "play every scenario on past releases"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text}.".capitalize())
        action.add_argument("--json", action="store_true", help="print data")
        if name == "matrix":
            _add_matrix_arguments(action)


def _add_matrix_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--release",
        action="append",
        metavar="X",
        help="langgraph's, or `latest`; may be given more than once (default: all kept ones)",
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="keep the columns in a page")
    parser.add_argument("--check", type=Path, metavar="PAGE", help="compare with a page's columns")
    parser.add_argument(
        "--postgres-uri",
        metavar="URI",
        help=f"your server (default: ${VARIABLE}, or a new one)",
    )
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where environments are kept")


def run(arguments: argparse.Namespace) -> int:
    """Do it; `status` gives 1 for what nothing here answers, `matrix` for a difference."""
    if arguments.action == "list":
        return _list(as_json=arguments.json)
    try:
        return (
            _status(as_json=arguments.json) if arguments.action == "status" else _matrix(arguments)
        )
    except (StagingError, ValueError) as error:
        raise UsageError(str(error)) from error


def _list(*, as_json: bool) -> int:
    if as_json:
        print(json.dumps([_described(defect) for defect in fixes.DEFECTS], indent=2))
        return 0
    for defect in fixes.DEFECTS:
        upstream = ", ".join(defect.upstream) or "not reported"
        print(f"{defect.slug}\n  {defect.symptom}")
        print(f"  {defect.severity}; {defect.distribution}; {upstream}")
        print(f"  {defect.kind}: {defect.remedy.text}")
    return 0


def _described(defect: fixes.Defect) -> dict[str, object]:
    return {
        "slug": defect.slug,
        "symptom": defect.symptom,
        "upstream": list(defect.upstream),
        "distribution": defect.distribution,
        "severity": defect.severity,
        "savers": sorted(defect.savers),
        "remedy": defect.kind,
        "advice": defect.remedy.text,
    }


def _status(*, as_json: bool) -> int:
    rows = fixes.status()
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        for row in rows:
            print(f"{row.slug:<30} {row.presence:<14} {row.remedy:<8} {shorten(row.evidence, 90)}")
    return int(bool(unanswered(rows)))


def _matrix(arguments: argparse.Namespace) -> int:
    pages = [page for page in (arguments.write, arguments.check) if page]
    kept = {page: compatibility.read(page) for page in pages}  # fails before the long part
    columns = _measure(arguments)
    if arguments.json:
        print(json.dumps([asdict(column) for column in columns], indent=2))
    elif not pages:
        print(compatibility.markdown({column.release: column for column in columns}))
    if arguments.write:
        merged = compatibility.merged(kept[arguments.write], columns)
        compatibility.write(arguments.write, merged)
    broken = [name for column in columns for name, cell in column.cells.items() if cell == "?"]
    for name in broken:
        print(f"the scenario itself failed: {name}", file=sys.stderr)
    return int(bool(broken) or _departs(columns, kept.get(arguments.check)))


def _measure(arguments: argparse.Namespace) -> list[Column]:
    needs("psycopg", "postgres")
    with ExitStack() as stack:
        uri = stack.enter_context(server(arguments.postgres_uri or os.environ.get(VARIABLE)))
        return [
            measured(release, lambda: fresh_database(uri), cache=arguments.cache, say=_say)
            for release in arguments.release or known()
        ]


def _departs(columns: Sequence[Column], kept: dict[str, Column] | None) -> bool:
    """Whether a measurement differs from the page; a release of later date from its last one."""
    if not kept:
        return False
    found = [
        f"langgraph {column.release}: {line}"
        for column in columns
        for line in differences(column, kept.get(column.release, [*kept.values()][-1]).cells)
    ]
    print("\n".join(found) or "as the page says", file=sys.stderr)
    return bool(found)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
