"""Install, remove or check the fence inside a database: a trigger that refuses forks.

It stops programs that write without a guard. Existing forks are listed, not repaired.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
from dataclasses import asdict
from urllib.parse import quote

from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.doctor.urls import address, scrubbed
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.guard import ddl

__all__ = ["SUMMARY", "add_arguments", "run"]

_SHOWN = 20
_UNDEFINED_TABLE = "42P01"
SUMMARY = "stop unguarded writers from forking threads, inside the database"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("action", choices=("install", "remove", "check"))
    parser.add_argument(
        "--db",
        metavar="URL",
        default=os.environ.get("DATABASE_URL"),
        help="a SQLite file or postgresql://... (default: $DATABASE_URL)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do it; 1 if `check` finds no fence, or forks."""
    if not arguments.db:
        message = "name the database with --db or DATABASE_URL"
        raise UsageError(message)
    url = _url(arguments.db)
    postgres = url.startswith("postgres")
    errors: type[Exception] = needs("psycopg", "postgres").Error if postgres else sqlite3.Error
    try:
        return _act(arguments.action, url, as_json=arguments.json)
    except InvalidConfigError as error:
        raise UsageError(scrubbed(str(error), url)) from error
    except errors as error:
        raise UsageError(_told(error, url)) from error


def _url(text: str) -> str:
    """The address as a URL; a bare path names a SQLite file, as `doctor` takes it."""
    try:
        where = address(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return f"sqlite:///{quote(where.target)}" if where.kind == "sqlite" else where.target


def _told(error: Exception, url: str) -> str:
    """What the driver says, without passwords; what to do if the saver's tables are missing."""
    said = scrubbed(str(error).strip(), url)
    missing = getattr(error, "sqlstate", "") == _UNDEFINED_TABLE or "no such table" in said
    return f"the saver's tables are not there: call its setup() first ({said})" if missing else said


def _act(action: str, url: str, *, as_json: bool) -> int:
    if action == "install":
        ddl.install(url)
    elif action == "remove":
        ddl.remove(url)
    report = ddl.check(url)
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        there = "installed" if report.installed else "not installed"
        print(f"fence {there}; checkpoints with several children: {len(report.forks)}")
        for fork in report.forks[:_SHOWN]:
            where = f"thread {fork.thread_id!r}, namespace {fork.checkpoint_ns!r}"
            print(f"  {where}: {fork.checkpoint_id or 'no parent'} has {fork.children} children")
        if len(report.forks) > _SHOWN:
            print(f"  and {len(report.forks) - _SHOWN} more; --json prints them all")
    return int(action == "check" and (not report.installed or bool(report.forks)))
