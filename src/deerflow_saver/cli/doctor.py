"""Say which known defects are here, what a saver can do, and whether a database is sound.

Nothing is written, unless --scratch-thread is given. With --watch, print instead what a
running service's cache and guard do, until interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys

from deerflow_saver import fixes
from deerflow_saver.cli.doctor_report import as_text
from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.cli.watch import watch
from deerflow_saver.doctor.consultation import of_database, of_release, of_saver
from deerflow_saver.doctor.database import MissingDatabaseError
from deerflow_saver.doctor.examination import SEEN_ONLY, Examination
from deerflow_saver.doctor.opening import CannotOpenError
from deerflow_saver.doctor.urls import Address, address, scrubbed

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "known defects, a saver's abilities, a database's state, a service's rates"

_INTERVAL = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--saver", metavar="MODULE:FACTORY", help="the saver your application uses")
    what.add_argument(
        "--db",
        metavar="URL",
        nargs="?",
        const=os.environ.get("DATABASE_URL", ""),
        help="a SQLite file or postgresql://... (without URL: $DATABASE_URL)",
    )
    what.add_argument(
        "--watch",
        metavar="URL",
        nargs="?",
        const=os.environ.get("DEERFLOW_SAVER_METRICS_URL", ""),
        help="live rates from a service's Prometheus endpoint "
        "(without URL: $DEERFLOW_SAVER_METRICS_URL)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        help="with --watch: between two lines, 2 by default",
    )
    parser.add_argument("--count", type=int, metavar="N", help="with --watch: end after N lines")
    parser.add_argument(
        "--scratch-thread",
        action="store_true",
        help="write a thread of its own, try the saver on it, delete it",
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="SLUG",
        help="a defect whose advice you follow; may be given more than once",
    )
    parser.add_argument("--json", action="store_true", help="print data")


def run(arguments: argparse.Namespace) -> int:
    """Do it; 1 if something can lose or corrupt data and nothing answers it."""
    if arguments.watch is not None:
        return _watched(arguments)
    if arguments.interval is not None or arguments.count is not None:
        message = "--interval and --count are for --watch"
        raise UsageError(message)
    try:
        found = _examined(arguments)
    except (CannotOpenError, MissingDatabaseError, ValueError) as error:
        raise UsageError(scrubbed(str(error), arguments.db or "")) from error
    print(json.dumps(found.as_data(), indent=2) if arguments.json else as_text(found))
    return int(bool(found.problems))


def _watched(arguments: argparse.Namespace) -> int:
    if not arguments.watch:
        message = "name the service's endpoint with --watch or DEERFLOW_SAVER_METRICS_URL"
        raise UsageError(message)
    if arguments.scratch_thread or arguments.accept:
        message = "--scratch-thread and --accept are not for --watch"
        raise UsageError(message)
    interval = _INTERVAL if arguments.interval is None else arguments.interval
    return watch(arguments.watch, interval=interval, times=arguments.count, as_json=arguments.json)


def _examined(arguments: argparse.Namespace) -> Examination:
    accepted = _accepted(arguments.accept)
    if arguments.scratch_thread and (arguments.saver or arguments.db):
        print("doctor: writing a scratch thread", file=sys.stderr)
    if arguments.saver:
        return of_saver(arguments.saver, scratch_thread=arguments.scratch_thread, accepted=accepted)
    if arguments.db is not None:
        return _of_database(arguments, accepted)
    if arguments.scratch_thread:
        message = "--scratch-thread needs --saver or --db: there is nothing to write to"
        raise UsageError(message)
    return of_release(accepted=accepted)


def _accepted(slugs: list[str]) -> frozenset[str]:
    known = SEEN_ONLY.union(defect.slug for defect in fixes.DEFECTS)
    unknown = sorted(set(slugs) - known)
    if unknown:
        message = f"--accept {unknown[0]}: no such defect; known are {', '.join(sorted(known))}"
        raise UsageError(message)
    return frozenset(slugs)


def _of_database(arguments: argparse.Namespace, accepted: frozenset[str]) -> Examination:
    if not arguments.db:
        message = "name the database with --db or DATABASE_URL"
        raise UsageError(message)
    where = address(arguments.db)
    errors = _errors(where)
    try:
        return of_database(where, scratch_thread=arguments.scratch_thread, accepted=accepted)
    except errors as error:
        message = f"{where.shown}: {scrubbed(str(error), where.target).strip()}"
        raise UsageError(message) from error


def _errors(where: Address) -> type[Exception]:
    needs(f"langgraph.checkpoint.{where.kind}", where.kind)
    if where.kind == "sqlite":
        return sqlite3.Error
    error: type[Exception] = needs("psycopg", "postgres").Error
    return error
