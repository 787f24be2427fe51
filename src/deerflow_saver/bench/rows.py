"""The rows of results: one JSON object a line, appended as cells end."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["append", "load", "provenance", "resolve_git_sha"]

SCHEMA_VERSION = 2
BENCHMARK_VERSION = 2
GIT_SHA_VARIABLE = "DEERFLOW_CHECKPOINT_BENCH_GIT_SHA"
_PACKAGES = (
    "deerflow-saver",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
)


def resolve_git_sha() -> str:
    """The commit of the working folder: given by the environment, asked of git, or `unknown`."""
    given = os.environ.get(GIT_SHA_VARIABLE)
    if given:
        return given
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return asked.stdout.strip() or "unknown"


def provenance(benchmark: str, git_sha: str) -> dict[str, Any]:
    """What every row of a run says of its origin."""
    return {
        "schema_version": SCHEMA_VERSION,
        "benchmark": benchmark,
        "benchmark_version": BENCHMARK_VERSION,
        "git_sha": git_sha,
        "python_version": platform.python_version(),
        **{f"{name.replace('-', '_')}_version": _version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
    }


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a file; they are on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())


def load(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """All rows of the files, each with `input`, the index of its file.

    Blank lines and lines that begin with `#` are left out. A row that a later row of the same
    file measures again (same cell) is left out too.

    Raises:
        ValueError: a line is no JSON object; all such lines are named.

    """
    rows, malformed = [], []
    for index, path in enumerate(paths):
        found, bad = _lines(path)
        malformed += bad
        rows += [{**row, "input": index} for row in _newest(found)]
    if malformed:
        raise ValueError("Malformed JSONL row(s):\n" + "\n".join(malformed))
    return rows


def _lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    rows, bad = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            bad.append(f"{path}:{number}: {error}")
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad.append(f"{path}:{number}: not an object")
    return rows, bad


def _newest(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: dict[Any, dict[str, Any]] = {}
    for number, row in enumerate(rows):
        kept[row.get("cell", number)] = row
    return list(kept.values())


def _version(name: str, ask: Callable[[str], str] = version) -> str | None:
    try:
        return ask(name)
    except PackageNotFoundError:
        return None
