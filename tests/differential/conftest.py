"""Hosts for the state machines: one saver case on a storage of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from differential.hosts import Host
from support.savers import CASES, SaverCase, Storage


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> SaverCase:
    """Every saver in turn."""
    chosen: SaverCase = request.param
    return chosen


@pytest.fixture
def host(case: SaverCase, storage: Storage) -> Iterator[Host]:
    """The saver, opened twice on one database."""
    with Host(case, storage) as opened:
        yield opened


@pytest.fixture
def twin(case: SaverCase, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    """The same saver on a second database."""
    folder = tmp_path / "twin"
    folder.mkdir()
    storage = Storage(folder, lambda: str(request.getfixturevalue("postgres_uri")))
    with Host(case, storage) as opened:
        yield opened
    storage.close()
