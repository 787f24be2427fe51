"""Full state beside delta channels: the cost of writing, storing and reading a thread in each.

Every case runs in a fresh process. Cases of a pair, at whatever cadence, must end in the same
messages. `--production` runs conversations over the wrapped saver and reads them through the
HTTP router. Exits with 1 if any case failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deerflow_saver.bench.arguments import choices, positive, positives
from deerflow_saver.bench.channels.cases import CACHES, ChannelCase, capped, channel_matrix
from deerflow_saver.bench.channels.controlling import left_over, run_cases
from deerflow_saver.bench.channels.production_cases import ProductionCase, production_matrix
from deerflow_saver.bench.rows import load
from deerflow_saver.bench.summaries import summary_tables
from deerflow_saver.bench.telling import telling
from deerflow_saver.cli.errors import UsageError, needs

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "full state beside delta channels"
_CAP = 1 << 30
_MODES = ("full", "delta")
_AXES: dict[str, dict[str, tuple[int, ...]]] = {
    "channels": {"updates": (10, 100), "snapshot_frequencies": (10,)},
    "production": {
        "turns": (10, 100, 500, 1000, 2000),
        "snapshot_frequencies": (10, 50, 100, 500, 1000),
    },
}
_BACKENDS = ("memory", "sqlite")
_LIMITS = (10, 50, 200)
_READ_REPETITIONS = 25
_ELSEWHERE = {
    True: ("backends", "updates", "max_estimated_full_bytes", "allow_large_cases"),
    False: ("turns", "history_limits", "read_repetitions"),
}
"""Per `--production` or not: the options that only the other benchmark takes."""
_STANDARD: dict[str, dict[str, tuple[int, ...]]] = {
    "channels": {"updates": (10, 100, 500), "snapshot_frequencies": (10, 100)},
    "production": {"turns": (10, 100), "snapshot_frequencies": (10, 100)},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand's options."""
    parser.add_argument(
        "--production", action="store_true", help="whole conversations, read over HTTP"
    )
    parser.add_argument(
        "--standard", action="store_true", help="the axes that docs/benchmarks.md shows"
    )
    for option, names, default, what in (
        ("--modes", _MODES, _MODES, "which modes"),
        ("--backends", _BACKENDS, None, "without --production (both)"),
    ):
        parser.add_argument(
            option, type=choices(option, names), default=default, metavar="A,B", help=what
        )
    for option, what in (
        ("--updates", "messages of a thread, without --production (10,100)"),
        ("--turns", "with --production (10,100,500,1000,2000)"),
        ("--snapshot-frequencies", "cadences; a delta-only axis, full runs once"),
        ("--history-limits", "with --production (10,50,200)"),
    ):
        parser.add_argument(option, type=positives(option), metavar="N,M", help=what)
    parser.add_argument(
        "--payload-bytes", type=positives("--payload-bytes"), default=(128,), metavar="N,M"
    )
    for option, number, scope in (
        ("--read-repetitions", None, "with --production (25)"),
        ("--repetitions", 3, "(%(default)s)"),
        ("--seed", 1, "(%(default)s)"),
        ("--timeout-seconds", 900, "of a case (%(default)s)"),
        ("--max-estimated-full-bytes", None, f"of a case, without --production ({_CAP})"),
    ):
        parser.add_argument(option, type=positive, default=number, metavar="N", help=scope)
    parser.add_argument(
        "--allow-large-cases", action="store_true", help="whatever they store; as the option above"
    )
    parser.add_argument(
        "--history-cache",
        choices=CACHES,
        help="the raw saver or the wrapped one (off; with --production memory)",
    )
    parser.add_argument("--profile-dir", type=Path, metavar="DIR", help="a cProfile of each case")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append the rows, as JSONL")
    parser.add_argument(
        "--resume", action="store_true", help="leave out the pairs that the output holds already"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure; 1 if a case failed."""
    _check(arguments)
    benchmark = "production" if arguments.production else "channels"
    asked = _production(arguments) if arguments.production else _channels(arguments)
    if not asked:
        raise UsageError("nothing is left to measure")
    cases = _left(asked, arguments)
    with telling("bench", len(cases)) as tell:
        rows = run_cases(
            benchmark,
            cases,
            timeout=arguments.timeout_seconds,
            profiles=arguments.profile_dir,
            output=arguments.output,
            tell=lambda case: tell(case.name),
        )
    print(summary_tables(load([arguments.output]) if arguments.output else rows))
    failed = [row for row in rows if not row["success"]]
    for row in failed:
        print(f"FAILED {row['mode']}: {row['error']}", file=sys.stderr)
    return 1 if failed else 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that the chosen benchmark would pass over."""
    production = arguments.production
    foreign = [name for name in _ELSEWHERE[production] if getattr(arguments, name)]
    if foreign:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in foreign)
        chosen = "does not go with" if production else "needs"
        raise UsageError(f"{named} {chosen} --production")


def _left(
    cases: Sequence[ChannelCase | ProductionCase], arguments: argparse.Namespace
) -> Sequence[ChannelCase | ProductionCase]:
    if not arguments.resume:
        return cases
    if arguments.output is None:
        raise UsageError("--resume needs --output")
    left = left_over(cases, arguments.output)
    if len(left) < len(cases):
        print(f"{len(cases) - len(left)} case(s) are measured already.", file=sys.stderr)
    return left


def _axis(arguments: argparse.Namespace, benchmark: str, name: str) -> tuple[int, ...]:
    usual = (_STANDARD if arguments.standard else _AXES)[benchmark][name]
    asked: tuple[int, ...] | None = getattr(arguments, name)
    return asked or usual


def _channels(arguments: argparse.Namespace) -> Sequence[ChannelCase]:
    backends = arguments.backends or _BACKENDS
    if "sqlite" in backends:
        needs("langgraph.checkpoint.sqlite", "bench")
    cases = list(
        channel_matrix(
            arguments.modes,
            backends,
            _axis(arguments, "channels", "updates"),
            arguments.payload_bytes,
            _axis(arguments, "channels", "snapshot_frequencies"),
            repetitions=arguments.repetitions,
            seed=arguments.seed,
            history_cache=arguments.history_cache or "off",
        )
    )
    limit = None if arguments.allow_large_cases else arguments.max_estimated_full_bytes or _CAP
    kept, over = capped(cases, limit)
    if over:
        pairs = len({case.pair for case in over})
        print(
            f"Skipping {pairs} pair(s), {len(over)} case(s), whose full state would hold more "
            f"than {limit} bytes of text; --allow-large-cases runs them.",
            file=sys.stderr,
        )
    return kept


def _production(arguments: argparse.Namespace) -> Sequence[ProductionCase]:
    for module, extra in (("fastapi", "fastapi"), ("httpx", "fastapi")):
        needs(module, extra)
    fixed: dict[str, Any] = {
        "seed": arguments.seed,
        "history_limits": arguments.history_limits or _LIMITS,
        "read_repetitions": arguments.read_repetitions or _READ_REPETITIONS,
        "history_cache": arguments.history_cache or "memory",
    }
    try:
        return list(
            production_matrix(
                arguments.modes,
                _axis(arguments, "production", "turns"),
                arguments.payload_bytes,
                _axis(arguments, "production", "snapshot_frequencies"),
                repetitions=arguments.repetitions,
                **fixed,
            )
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
