"""List the changes staged for LangGraph, or validate them on releases in scratch environments.

Validating runs a change's test on the release (it must fail), on a copy with the diff
applied, and with the runtime fix of the same name (both must pass).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from deerflow_saver.cli.errors import UsageError
from deerflow_saver.cli.progress import Progress
from deerflow_saver.errors import StagingError
from deerflow_saver.staging.environments import Environment, environment, installed
from deerflow_saver.staging.record import read, record, table, write_page
from deerflow_saver.staging.releases import LATEST
from deerflow_saver.staging.staged import Staged, find_folder, load
from deerflow_saver.staging.validation import Result, validate

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "validate the changes staged for LangGraph on its releases"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="what is staged, and what was last validated")
    listed.add_argument(
        "--write", metavar="PAGE", type=Path, help="put the table between a page's markers"
    )
    validated = actions.add_parser("validate", help="try staged changes on releases")
    validated.add_argument("slug", nargs="*", help="which changes (default: all)")
    validated.add_argument(
        "--release",
        metavar="VERSION",
        action="append",
        help="a langgraph release; may be given again (default: those in patch.toml)",
    )
    validated.add_argument("--latest", action="store_true", help="also on the newest release")
    validated.add_argument(
        "--installed",
        action="store_true",
        help="on what is installed beside this command: no network, nothing recorded",
    )
    validated.add_argument(
        "--cache",
        metavar="FOLDER",
        type=Path,
        help="where environments are kept (default: $DEERFLOW_SAVER_CACHE_DIR or the user's cache)",
    )
    for action in (listed, validated):
        action.add_argument("--patches", metavar="FOLDER", type=Path, help="the staged changes")
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do it; 1 if a change is not validated where it was tried."""
    try:
        folder = arguments.patches or find_folder(Path.cwd())
        return (_list if arguments.action == "list" else _validate)(arguments, folder)
    except StagingError as error:
        raise UsageError(str(error)) from error


def _list(arguments: argparse.Namespace, folder: Path) -> int:
    staged, kept = load(folder), read(folder)
    if arguments.write:
        write_page(arguments.write, table(staged, kept))
    if arguments.json:
        print(json.dumps([_listed(change, kept.get(change.slug, {})) for change in staged]))
        return 0
    for change in staged:
        print(f"{change.slug} ({change.distribution})\n  {change.summary}")
        for link in change.upstream:
            print(f"  {link}")
        for release, entry in kept.get(change.slug, {}).items():
            print(f"  {release:<8} {entry['outcome']}")
    return 0


def _listed(change: Staged, results: object) -> dict[str, object]:
    told = {name: getattr(change, name) for name in ("slug", "summary", "distribution")}
    return {**told, "upstream": change.upstream, "results": results}


def _validate(arguments: argparse.Namespace, folder: Path) -> int:
    if arguments.installed and (arguments.release or arguments.latest):
        message = "--installed goes without --release and --latest"
        raise UsageError(message)
    progress = Progress("patches", 1)
    try:
        results = list(_results(arguments, load(folder, arguments.slug), folder, progress))
    finally:
        progress.close()
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        _print(results)
    return int(not all(result.verdict.outcome.fine for result in results))


def _results(
    arguments: argparse.Namespace, staged: Sequence[Staged], folder: Path, progress: Progress
) -> Iterator[Result]:
    """Validate, and record each result as soon as it is there."""
    for change in staged:
        for there in _environments(arguments, change, progress):
            where = f"{change.slug} on {there.name}"
            result = validate(change, there, _saying(progress, where))
            if not arguments.installed:
                record(folder, [result])
            yield result


def _saying(progress: Progress, where: str) -> Callable[[str], None]:
    return lambda step: progress.say(f"{where}: {step}")


def _environments(
    arguments: argparse.Namespace, change: Staged, progress: Progress
) -> Iterator[Environment]:
    if arguments.installed:
        yield installed()
        return
    asked = [*(arguments.release or ()), *([LATEST] if arguments.latest else ())]
    for release in asked or change.releases:
        yield environment(release, cache=arguments.cache, say=progress.say)


def _print(results: Sequence[Result]) -> None:
    for result in results:
        verdict = result.verdict
        fix = f", runtime fix: {verdict.fix}" if verdict.fix else ""
        where = f"{result.release} ({result.distribution} {result.version})"
        print(f"{result.slug} on {where}: {verdict.outcome}{fix}")
        for line in verdict.detail.splitlines():
            print(f"    {line}")
    fine = sum(result.verdict.outcome.fine for result in results)
    print(f"{fine} of {len(results)} as they should be")
