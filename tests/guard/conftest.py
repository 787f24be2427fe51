"""Databases for scenarios: one Postgres database per module, emptied before every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.databases import fresh_postgres

pytest.register_assert_rewrite("guard.verdicts", "guard.processes")


@pytest.fixture(scope="module")
def shared_postgres(postgres_uri: str) -> Iterator[str]:
    """The URI of a database that the tests of a module share, one after the other."""
    with fresh_postgres(postgres_uri, set_up=True) as uri:
        yield uri


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Makes empty databases of one kind."""
    from guard.storage import Memory, Postgres, Sqlite

    if request.param == "postgres":
        uri = request.getfixturevalue("shared_postgres")
        return lambda: Postgres(uri)
    return Memory if request.param == "memory" else lambda: Sqlite(tmp_path)


@pytest.fixture
def place_of(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str, Any], Any]:
    """Makes an empty database for a saver case, and says how a racer finds it."""
    from guard.racer import Spec
    from guard.storage import Postgres, Sqlite

    def make(case: str, durability: Any) -> tuple[Any, Spec]:
        if "sqlite" in case:
            file = Sqlite(tmp_path, "checkpoints.sqlite")
            return file, Spec(case, str(tmp_path), "", durability)
        uri = request.getfixturevalue("shared_postgres")
        return Postgres(uri), Spec(case, str(tmp_path), uri, durability)

    return make
