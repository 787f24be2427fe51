"""Raw and wrapped savers side by side, every cell in a fresh process, every answer compared.

Rows are appended to the output as cases end. Exits with 1 if any cell failed or any answer
differed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deerflow_saver.bench.arguments import choices, positive, positives
from deerflow_saver.bench.case import BACKENDS, SCENARIOS, SIDES, capped, matrix
from deerflow_saver.bench.rows import load
from deerflow_saver.bench.running import Run, can_run, done_already
from deerflow_saver.bench.selections import Selection, quick, standard
from deerflow_saver.bench.servers import Servers
from deerflow_saver.bench.storage import check_own
from deerflow_saver.bench.tables import ab_tables
from deerflow_saver.bench.telling import telling
from deerflow_saver.cli.errors import UsageError
from deerflow_saver.cli.postgres import VARIABLE

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "the raw saver beside the wrapped one"
_CAP = 1 << 30
_SECONDS = 900
_OWN_POSTGRES = f"a server to make databases on (default: {VARIABLE}, or one of its own)"
_OWN_REDIS = "a Redis whose databases may be used and EMPTIED (default: a server of its own)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand's options."""
    _add_selection(parser)
    _add_axes(parser)
    _add_running(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure; 1 if a cell failed."""
    selections = _selections(arguments)
    if not arguments.resume and not any(chosen.cases for chosen in selections):
        raise UsageError("nothing is left to measure")
    if arguments.saver:
        check_own(arguments.saver)
    rows = _measured(selections, arguments)
    failed = [row for row in rows if not row["success"]]
    if arguments.quick:
        print(f"{len(rows)} cells, {sum(row.get('states', 0) for row in rows)} states compared")
    else:
        print(ab_tables(load([arguments.output]) if arguments.output else rows))
    for row in failed:
        print(f"FAILED {row['cell']}: {row['error']}", file=sys.stderr)
    return 1 if failed else 0


def _add_selection(parser: argparse.ArgumentParser) -> None:
    sets = parser.add_mutually_exclusive_group()
    sets.add_argument(
        "--quick", action="store_true", help="small cells in this process: answers only, no figures"
    )
    sets.add_argument(
        "--standard", action="store_true", help="the selection that docs/benchmarks.md shows"
    )
    for name, names in (("backends", BACKENDS), ("scenarios", tuple(SCENARIOS)), ("sides", SIDES)):
        option = f"--{name}"
        parser.add_argument(
            option, type=choices(option, names), metavar="A,B", help=f"out of {', '.join(names)}"
        )
    parser.add_argument(
        "--saver", metavar="MODULE:FACTORY", help="your own saver, unwrapped, as backend `own`"
    )


def _add_axes(parser: argparse.ArgumentParser) -> None:
    for name, what in (
        ("turns", "how long a thread is when measuring begins"),
        ("payload-bytes", "size of each message's text (128)"),
        ("snapshot-frequencies", "updates between two snapshots (never, of `long` 100)"),
        ("writers", "threads that take turns at the same time (1)"),
    ):
        parser.add_argument(f"--{name}", type=positives(f"--{name}"), metavar="N,M", help=what)
    for name, default, what in (
        ("repetitions", 1, "how often each case is measured"),
        ("rounds", 15, "measured rounds of a cell"),
        ("warm-up", 2, "rounds before them, whose figures are dropped"),
        ("threads", 200, "threads of the scenario `threads`"),
        ("seed", 1, "what chance follows from"),
    ):
        parser.add_argument(
            f"--{name}", type=positive, default=default, metavar="N", help=f"{what} (%(default)s)"
        )
    parser.add_argument(
        "--guard",
        choices=("off", "observe", "refuse"),
        default="off",
        help="the guard of the wrapped sides (%(default)s: the cache alone is measured)",
    )


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FILE", help="append the rows, as JSONL")
    parser.add_argument(
        "--resume", action="store_true", help="leave out what the output holds already"
    )
    parser.add_argument(
        "--timeout-seconds", type=positive, default=_SECONDS, metavar="N", help="of work, per cell"
    )
    parser.add_argument(
        "--max-estimated-bytes",
        type=positive,
        default=_CAP,
        metavar="N",
        help="leave out cases whose cells would store more text (%(default)s)",
    )
    parser.add_argument("--allow-large-cases", action="store_true", help="whatever they store")
    parser.add_argument("--profile-dir", type=Path, metavar="DIR", help="a cProfile of each cell")
    parser.add_argument("--postgres-uri", default=os.environ.get(VARIABLE), help=_OWN_POSTGRES)
    parser.add_argument("--redis-url", metavar="URL", help=_OWN_REDIS)


def _selections(arguments: argparse.Namespace) -> list[Selection]:
    if arguments.quick:
        return quick()
    chosen = standard() if arguments.standard else [_asked(arguments)]
    limit = None if arguments.allow_large_cases else arguments.max_estimated_bytes
    return [_within(_left(selection, arguments), limit) for selection in chosen]


def _asked(arguments: argparse.Namespace) -> Selection:
    backends = arguments.backends or (("own",) if arguments.saver else ("memory", "sqlite"))
    if ("own" in backends) != bool(arguments.saver):
        raise UsageError("the backend `own` and --saver MODULE:FACTORY go together")
    axes = {
        name: getattr(arguments, name) or ()
        for name in ("turns", "payload_bytes", "snapshot_frequencies", "writers")
    }
    fixed = {
        name: getattr(arguments, name)
        for name in ("repetitions", "rounds", "warm_up", "threads", "seed", "guard")
    }
    cases = list(matrix(backends, arguments.scenarios or tuple(SCENARIOS), axes, **fixed))
    sides = arguments.sides or ("raw", "memory", "alternative")
    return Selection(cases, sides)


def _left(selection: Selection, arguments: argparse.Namespace) -> Selection:
    if not arguments.resume:
        return selection
    if arguments.output is None:
        raise UsageError("--resume needs --output")
    left, commits = done_already(selection.cases, selection.sides, arguments.output)
    done = len(selection.cases) - len(left)
    if done:
        _say(f"{done} case(s) are measured already, on {', '.join(commits)}.")
    return Selection(left, selection.sides)


def _within(selection: Selection, limit: int | None) -> Selection:
    kept, over = capped(selection.cases, limit)
    if over:
        cells = sum(can_run(case, side) for case in over for side in selection.sides)
        _say(
            f"Skipping {len(over)} case(s), {cells} cell(s), whose threads would hold more than "
            f"{limit} bytes of text: {', '.join(map(str, over))}; --allow-large-cases runs them."
        )
    return Selection(kept, selection.sides)


def _measured(
    selections: Sequence[Selection], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    rows = []
    total = sum(len(chosen.cases) for chosen in selections)
    servers = Servers(arguments.postgres_uri, arguments.redis_url, arguments.saver)
    with telling("bench", total) as tell, servers:
        for chosen in selections:
            run = Run(
                chosen.sides,
                timeout=arguments.timeout_seconds,
                profiles=arguments.profile_dir,
                output=None if arguments.quick else arguments.output,
                here=arguments.quick,
            )
            rows += run.run(chosen.cases, servers, lambda case: tell(str(case)))
    return rows


def _say(text: str) -> None:
    print(text, file=sys.stderr)
