"""The databases the benchmark runs on: a SQLite file and a Postgres of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from bench.counting import counting
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

__all__ = ["BACKENDS", "own_postgres"]

_TESTS = str(Path(__file__).parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)  # the suite knows how to start a server


@contextmanager
def _sqlite() -> Iterator[BaseCheckpointSaver[Any]]:
    with (
        tempfile.TemporaryDirectory(prefix="deerflow-saver-bench-") as folder,
        counting(SqliteSaver).from_conn_string(f"{folder}/checkpoints.sqlite") as saver,
    ):
        saver.setup()
        yield saver


@contextmanager
def own_postgres() -> Iterator[str]:
    """A server for this process and those it starts, unless the environment names one."""
    from support.servers import POSTGRES_VARIABLE, Servers

    servers = Servers()
    given = os.environ.get(POSTGRES_VARIABLE)
    try:
        os.environ[POSTGRES_VARIABLE] = servers.postgres_uri
        yield servers.postgres_uri
    finally:
        if given is None:
            os.environ.pop(POSTGRES_VARIABLE, None)
        servers.close()


@contextmanager
def _postgres() -> Iterator[BaseCheckpointSaver[Any]]:
    from support.databases import fresh_postgres

    with (
        own_postgres() as server,
        fresh_postgres(server) as uri,
        counting(PostgresSaver).from_conn_string(uri) as saver,
    ):
        saver.setup()
        yield saver


BACKENDS: dict[str, Callable[[], AbstractContextManager[BaseCheckpointSaver[Any]]]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
}
"""Each gives a saver that counts its calls."""
