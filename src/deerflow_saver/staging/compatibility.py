"""The matrix as it is kept in a Markdown page, between two markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.matrix import Column
from deerflow_saver.staging.releases import DISTRIBUTIONS
from deerflow_saver.staging.scenarios.catalogue import ALL

__all__ = ["BEGIN", "END", "markdown", "merged", "read", "write"]

BEGIN, END = "<!-- matrix:begin -->", "<!-- matrix:end -->"
_BETWEEN = re.compile(f"(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", re.DOTALL)
_SHORT = {name: name.removeprefix("langgraph-") for name in DISTRIBUTIONS}


def read(page: Path) -> dict[str, Column]:
    """The columns of a page, by release; without evidence, which the page leaves out.

    Raises:
        StagingError: there is no such page, or it has no markers.

    """
    tables = _tables(_between(page))
    if not tables:
        return {}
    releases, cells = tables
    names = list(_SHORT)
    columns = {}
    for number, release in enumerate(cells[0][2:], 2):
        versions = next((row[1:] for row in releases[1:] if row[0] == release), ())
        found = {row[0]: row[number] for row in cells[1:]}
        columns[release] = Column(release, dict(zip(names, versions, strict=True)), found)
    return columns


def merged(old: Mapping[str, Column], new: Iterable[Column]) -> dict[str, Column]:
    """`old` with the columns of `new` in their place, oldest release first."""
    columns = {**old, **{column.release: column for column in new}}
    return {release: columns[release] for release in sorted(columns, key=_by_number)}


def write(page: Path, columns: Mapping[str, Column]) -> None:
    """Replace what stands between the page's markers.

    Raises:
        StagingError: there is no such page, or it has no markers.

    """
    _between(page)
    text = page.read_text(encoding="utf-8")
    filled = f"\n\n{markdown(columns)}\n\n"
    page.write_text(_BETWEEN.sub(lambda _: filled, text), encoding="utf-8")


def markdown(columns: Mapping[str, Column]) -> str:
    """Two tables: what was installed, and what it showed."""
    versions = [
        [release, *(column.versions.get(name) or "-" for name in _SHORT)]
        for release, column in columns.items()
    ]
    cells = [
        [
            one.name,
            f"`{one.slug}`",
            *(column.cells.get(one.name, "") for column in columns.values()),
        ]
        for one in ALL
    ]
    return "\n\n".join(
        (
            _table(["langgraph", *_SHORT.values()], versions),
            _table(["case", "defect", *columns], cells),
        )
    )


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _tables(text: str) -> list[list[list[str]]]:
    """The tables of a text, as lists of rows, without the lines below their heads."""
    blocks = [block.strip().splitlines() for block in text.split("\n\n") if block.strip()]
    return [
        [[part.strip() for part in line.strip("|").split("|")] for line in (head, *rows)]
        for head, _, *rows in blocks
    ]


def _between(page: Path) -> str:
    if not page.is_file():
        message = f"there is no page at {page}"
        raise StagingError(message)
    found = _BETWEEN.search(page.read_text(encoding="utf-8"))
    if found is None:
        message = f"{page} has no place for the matrix: it needs the lines {BEGIN} and {END}"
        raise StagingError(message)
    return found.group()


def _by_number(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]
