"""What was validated when it was last tried: `patches/results.json`, and its table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.staged import Staged
from deerflow_saver.staging.validation import Result

__all__ = ["BEGIN", "END", "Record", "read", "record", "table", "write_page"]

Record = Mapping[str, Mapping[str, Mapping[str, str]]]
"""slug -> langgraph release -> `outcome`, `version` of the distribution, `fix`."""

BEGIN, END = "<!-- patches:begin -->", "<!-- patches:end -->"
_NAME = "results.json"


def read(folder: Path) -> Record:
    """What the results file of a `patches` folder says; empty if there is none."""
    path = folder / _NAME
    kept: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return kept


def record(folder: Path, results: Iterable[Result]) -> None:
    """Put the results into the file, in place of older ones for the same change and release."""
    kept = {slug: dict(releases) for slug, releases in read(folder).items()}
    for result in results:
        kept.setdefault(result.slug, {})[result.release] = {
            "outcome": str(result.verdict.outcome),
            "version": result.version,
            "fix": result.verdict.fix,
        }
    ordered = {
        slug: dict(sorted(kept[slug].items(), key=lambda item: _order(item[0])))
        for slug in sorted(kept)
    }
    text = json.dumps(ordered, indent=2) + "\n"
    (folder / _NAME).write_text(text, encoding="utf-8")


def table(staged: Sequence[Staged], kept: Record) -> str:
    """One line for each staged change and release, in Markdown."""
    lines = [
        "| change | langgraph | distribution | outcome | runtime fix |",
        "|---|---|---|---|---|",
    ]
    for change in staged:
        for release, entry in kept.get(change.slug, {}).items():
            where = f"{change.distribution} {entry['version']}"
            cells = (f"`{change.slug}`", release, where, entry["outcome"], entry["fix"] or "-")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(page: Path, text: str) -> None:
    """Put `text` between the page's markers.

    Raises:
        StagingError: the page cannot be read, or has no markers.

    """
    try:
        before, began, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    except OSError as error:
        raise StagingError(str(error)) from error
    _, ended, after = rest.partition(END)
    if not began or not ended:
        raise StagingError(f"{page} has no {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())
