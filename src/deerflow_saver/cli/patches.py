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
from textwrap import indent

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
    jobs = list(_jobs(arguments, load(folder, arguments.slug)))
    progress = Progress("patches", len(jobs))
    results: list[Result] = []
    try:
        for number, (change, release) in enumerate(jobs, start=1):
            place = f"{number}/{len(jobs)} {change.slug}"
            there = _environment(release, arguments.cache, _saying(progress, place))
            result = validate(change, there, _saying(progress, f"{place} on {there.name}"))
            if release is not None:
                record(folder, [result])
            results.append(result)
    finally:  # What was found stays worth reading if the index goes away meanwhile.
        progress.close()
        if results or not jobs:  # else there is only the error to tell
            _print(results, as_json=arguments.json)
    return int(not all(result.verdict.outcome.fine for result in results))


def _jobs(
    arguments: argparse.Namespace, staged: Sequence[Staged]
) -> Iterator[tuple[Staged, str | None]]:
    """Each change with each release to try it on; None is what is installed."""
    asked = [*(arguments.release or ()), *([LATEST] if arguments.latest else ())]
    for change in staged:
        if arguments.installed:
            yield change, None
        else:
            yield from ((change, release) for release in asked or change.releases)


def _environment(
    release: str | None, cache: Path | None, say: Callable[[str], None]
) -> Environment:
    return installed() if release is None else environment(release, cache=cache, say=say)


def _saying(progress: Progress, where: str) -> Callable[[str], None]:
    return lambda step: progress.say(f"{where}: {step}")


def _print(results: Sequence[Result], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(_line("change", "langgraph", "distribution", "outcome", "runtime fix"))
    for result in results:
        verdict, where = result.verdict, f"{result.distribution} {result.version}"
        print(_line(result.slug, result.release, where, verdict.outcome, verdict.fix or "-"))
    for result in results:
        if not result.verdict.outcome.fine:
            print(f"\n{result.slug} on {result.release}: {result.verdict.outcome}")
            print(indent(result.verdict.detail, "    "))
    fine = sum(result.verdict.outcome.fine for result in results)
    print(f"\n{fine} of {len(results)} as they should be")


def _line(*cells: str) -> str:
    return "  ".join(
        f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)
    ).rstrip()


_WIDTHS = (24, 9, 35, 22, 11)
