"""Dependency arrows that import contracts cannot express.

`make lint` checks the contracts in `pyproject.toml`; import-linter sees an outside
distribution only by its first name, so `langgraph.checkpoint.postgres` is told from
`langgraph.checkpoint.base` here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "deerflow_saver"
PURE = ("history", "guard/rule.py", "channel_mode")
BACKENDS = (
    "aiosqlite",
    "langgraph.checkpoint.memory",
    "langgraph.checkpoint.postgres",
    "langgraph.checkpoint.sqlite",
    "psycopg",
    "redis",
    "sqlite3",
)


def imported(path: Path) -> Iterator[str]:
    """Every module and name a file imports, those under TYPE_CHECKING included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(*rooms: str) -> Iterator[Path]:
    """The files of the rooms that exist."""
    for room in rooms:
        place = PACKAGE / room
        yield from [place] if place.is_file() else place.rglob("*.py")


def test_pure_rooms_know_no_backend() -> None:
    offences = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in modules(*PURE)
        for name in imported(path)
        if name.startswith(BACKENDS)
    ]
    assert offences == []


def test_only_the_saver_knows_both_the_history_and_the_guard() -> None:
    both = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if all(
            any(name.startswith(f"deerflow_saver.{room}") for name in imported(path))
            for room in ("history", "guard")
        )
    ]
    assert both in ([], ["saver.py"])
