"""The code blocks of the README and of every page run, in order, against real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.docs import run_blocks
from support.upstream import reloads_what_ran

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMPARING = {"cli.md"}
"""Pages whose blocks fail where the raw saver's answer differs, right or wrong."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_run(
    page: Path,
    tmp_path: Path,
    postgres_database: str,
    redis_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if page.name in COMPARING and not reloads_what_ran():
        pytest.skip("it compares with raw savers, which order parallel writes by chance here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", postgres_database)
    monkeypatch.setenv("REDIS_URL", redis_database)
    run_blocks(page)
