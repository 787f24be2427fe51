"""Where the raw and the wrapped side keep their checkpoints: one place each, dropped at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver.cli.counting import count_on, counted
from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.cli.postgres import fresh_database, server, wheel

__all__ = ["BACKENDS", "EXTRA", "Place", "check_extras", "open_saver", "places"]

EXTRA = "demo"
BACKENDS = ("memory", "sqlite", "postgres")
_MODULES: dict[str, tuple[str, ...]] = {
    "memory": (),
    "sqlite": ("langgraph.checkpoint.sqlite",),
    "postgres": ("langgraph.checkpoint.postgres", "psycopg"),
}


class Place(NamedTuple):
    """A database: a file's path, a Postgres connection string, or the owner of the dictionaries."""

    backend: str
    address: Any


def check_extras(backends: Iterable[str], postgres_uri: str | None) -> None:
    """Import what the backends need, before anything runs on the first of them.

    Raises:
        UsageError: something is not installed; the message says what to do.

    """
    for backend in backends:
        try:
            for module in _MODULES[backend]:
                needs(module, EXTRA)
            if backend == "postgres" and not postgres_uri:
                wheel()
        except UsageError as error:
            raise UsageError(f"{error}, or leave {backend} out with --backend") from error


@contextmanager
def places(backend: str, postgres_uri: str | None) -> Iterator[tuple[Place, Place]]:
    """Two empty databases of one kind."""
    if backend == "memory":
        yield Place(backend, InMemorySaver()), Place(backend, InMemorySaver())
    elif backend == "sqlite":
        with TemporaryDirectory(prefix="deerflow-saver-demo-") as folder:
            first, second = (str(Path(folder) / f"{name}.sqlite") for name in ("raw", "wrapped"))
            yield Place(backend, first), Place(backend, second)
    else:
        with server(postgres_uri) as uri, fresh_database(uri) as first, fresh_database(uri) as last:
            yield Place(backend, first), Place(backend, last)


@contextmanager
def open_saver(
    place: Place, counts: Counter[str] | None = None
) -> Iterator[BaseCheckpointSaver[Any]]:
    """A raw saver with a connection of its own; opening a place again is a restart."""
    counts = Counter() if counts is None else counts
    if place.backend == "memory":
        saver = counted(InMemorySaver)()
        count_on(saver, counts)
        for part in ("storage", "writes", "blobs"):
            setattr(saver, part, getattr(place.address, part))
        yield saver
    elif place.backend == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        with counted(SqliteSaver).from_conn_string(place.address) as sqlite:
            sqlite.setup()
            count_on(sqlite, counts)
            yield sqlite
    else:
        from langgraph.checkpoint.postgres import PostgresSaver

        with counted(PostgresSaver).from_conn_string(place.address) as postgres:
            postgres.setup()
            count_on(postgres, counts)
            yield postgres
