"""Run the same agent on a raw and on a wrapped saver; compare all they give, and time it.

Exits with 1 if any two states differ.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from langsmith import tracing_context

import deerflow_saver
from deerflow_saver.cli.backends import BACKENDS, check_extras, places
from deerflow_saver.cli.duel import Different, Duel
from deerflow_saver.cli.postgres import VARIABLE
from deerflow_saver.cli.progress import Progress
from deerflow_saver.cli.report import as_data, as_table
from deerflow_saver.cli.sides import NAMES, Agent

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "run an agent on a raw and on a wrapped saver, compare every state, show the times"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--backend",
        action="append",
        choices=BACKENDS,
        help="one backend; may be given more than once (default: all three)",
    )
    parser.add_argument(
        "--turns",
        type=_positive,
        default=60,
        metavar="N",
        help="questions put to the agent on each side (default: %(default)s)",
    )
    parser.add_argument(
        "--snapshot-frequency",
        type=_positive,
        default=200,
        metavar="N",
        help="updates of the messages between two full snapshots (default: %(default)s)",
    )
    parser.add_argument(
        "--payload-bytes",
        type=_positive,
        default=200,
        metavar="N",
        help="size of each message's text (default: %(default)s)",
    )
    parser.add_argument(
        "--postgres-uri",
        metavar="URI",
        default=os.environ.get(VARIABLE),
        help=f"a server to make two databases on and drop them again (default: {VARIABLE}, or a "
        "server of the demo's own, without fsync)",
    )
    parser.add_argument("--json", action="store_true", help="print data instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Compare on each backend; 1 if anything differed."""
    began = time.monotonic()
    results = []
    backends = list(dict.fromkeys(arguments.backend or BACKENDS))
    check_extras(backends, arguments.postgres_uri)
    # No run reports to a tracing service, whatever the environment says.
    with tracing_context(enabled=False):
        for backend in backends:
            results.append(_compare_on(backend, arguments))
            if not arguments.json:
                print(as_table(results[-1]), end="\n\n", flush=True)
    total = _total(results, arguments, time.monotonic() - began)
    print(json.dumps(total, indent=2) if arguments.json else _verdict(total))
    return 0 if total["equal"] else 1


def _compare_on(backend: str, arguments: argparse.Namespace) -> dict[str, Any]:
    agent = Agent(arguments.snapshot_frequency, arguments.payload_bytes)
    duel = Duel(backend, agent, arguments.turns)
    progress = Progress(backend, arguments.turns)
    difference = None
    progress.say("starting")
    try:
        with places(backend, arguments.postgres_uri) as both:
            duel.run(dict(zip(NAMES, both, strict=True)), progress)
    except Different as different:
        difference = str(different)
    finally:
        progress.close()
    return as_data(duel, difference)


def _total(
    results: Sequence[dict[str, Any]], arguments: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    return {
        "version": deerflow_saver.__version__,
        "equal": all(result["equal"] for result in results),
        "states_compared": sum(result["states_compared"] for result in results),
        "turns": arguments.turns,
        "snapshot_frequency": arguments.snapshot_frequency,
        "payload_bytes": arguments.payload_bytes,
        "seconds": round(seconds, 1),
        "backends": results,
    }


def _verdict(total: dict[str, Any]) -> str:
    different = [f"DIFFERENT: {r['difference']}" for r in total["backends"] if not r["equal"]]
    if different:
        return "\n".join(different)
    backends = len(total["backends"])
    return (
        f"every state equal: {backends} backend{'s' if backends > 1 else ''}, "
        f"{total['turns']} turns each, {total['states_compared']:,} states compared, "
        f"restart included ({total['seconds']:.0f} s)"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number
