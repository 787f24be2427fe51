"""Install, remove or check the fence inside a database: a trigger that refuses forks.

It stops programs that write without a guard. Existing forks are listed, not repaired.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
from dataclasses import asdict

from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.guard import ddl

__all__ = ["SUMMARY", "add_arguments", "run"]

_SHOWN = 20
SUMMARY = "stop unguarded writers from forking threads, inside the database"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("action", choices=("install", "remove", "check"))
    parser.add_argument(
        "--db",
        metavar="URL",
        default=os.environ.get("DATABASE_URL"),
        help="postgresql://... or sqlite:///path (default: $DATABASE_URL)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do it; 1 if `check` finds no fence, or forks."""
    url: str | None = arguments.db
    if not url:
        message = "name the database with --db or DATABASE_URL"
        raise UsageError(message)
    try:
        if url.startswith("postgres"):
            errors: type[Exception] = needs("psycopg", "postgres").Error
        else:
            errors = sqlite3.Error
        try:
            return _act(arguments.action, url, as_json=arguments.json)
        except errors as error:
            message = str(error).strip()
            raise UsageError(message) from error
    except InvalidConfigError as error:
        raise UsageError(str(error)) from error


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
