"""The databases of the cells: one each, made before and dropped after.

`memory`, `sqlite` and `postgres` are the demo's; the async backends are the same databases
through LangGraph's async savers. A saver of the user's own keeps its storage; threads that the
benchmark made there are deleted again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.bench.face import Face
from deerflow_saver.cli.backends import Place, open_saver
from deerflow_saver.cli.counting import count_on, counted
from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.cli.postgres import fresh_database
from deerflow_saver.doctor.capabilities import faces
from deerflow_saver.doctor.opening import CannotOpenError, opened

__all__ = ["Opened", "check_own", "database", "open_storage", "without_durability"]

EXTRA = "bench"


@dataclass(frozen=True, slots=True)
class Opened:
    """A raw saver with a connection of its own, and how to call it."""

    saver: Any
    face: Face


@contextmanager
def database(backend: str, server: str | None, own: str | None) -> Iterator[str]:
    """The address of an empty database for one cell; of an own saver, its factory's name."""
    if backend.endswith("sqlite"):
        needs("langgraph.checkpoint.sqlite", EXTRA)
        with TemporaryDirectory(prefix="deerflow-saver-bench-") as folder:
            yield str(Path(folder) / "checkpoints.sqlite")
    elif backend.endswith("postgres"):
        needs("langgraph.checkpoint.postgres", EXTRA)
        if server is None:
            raise UsageError("Postgres cells need a server")
        with fresh_database(server) as uri:
            yield uri
    else:
        yield own or ""


@contextmanager
def open_storage(backend: str, address: Any, counts: Counter[str]) -> Iterator[Opened]:
    """Open a cell's database; opening it again is a restart.

    Args:
        backend: one of `case.BACKENDS`.
        address: what `database` gave; of `memory`, an `InMemorySaver` whose data is shared.
        counts: where calls are counted.

    Raises:
        UsageError: the factory gives no saver.

    """
    if backend == "own":
        with _own(address, counts) as found:
            yield found
    elif backend.startswith("async-"):
        with ExitStack() as stack:
            yield _async(backend, address, counts, stack)
    else:
        place = Place(backend, address or InMemorySaver())
        with open_saver(place, counts) as saver:
            yield Opened(saver, Face())


@contextmanager
def without_durability(saver: Any) -> Iterator[None]:
    """Let SQLite not wait for the disk meanwhile: what is stored is read by this run alone."""
    connection = getattr(saver, "conn", None)
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    (before,) = connection.execute("PRAGMA synchronous").fetchone()
    connection.execute("PRAGMA synchronous = OFF")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA synchronous = {before}")


def check_own(name: str) -> None:
    """Open a user's saver once before any cell does, so that a wrong name is told once.

    Raises:
        UsageError: it cannot be opened, or is wrapped already.

    """
    try:
        with opened(name) as found:
            wrapped = isinstance(found.saver, CachedHistorySaver)
    except CannotOpenError as error:
        raise UsageError(str(error)) from error
    if wrapped:
        raise UsageError(
            f"{name} gives a CachedHistorySaver: name what gives the saver inside it, which is "
            "measured alone and wrapped"
        )


@contextmanager
def _own(name: str, counts: Counter[str]) -> Iterator[Opened]:
    try:
        with opened(name) as found:
            count_on(found.saver, counts)
            synchronous = faces(found.saver).startswith("sync")
            yield Opened(found.saver, Face(None if synchronous else found.runner))
    except CannotOpenError as error:
        raise UsageError(str(error)) from error


def _async(backend: str, address: str, counts: Counter[str], stack: ExitStack) -> Opened:
    runner = stack.enter_context(asyncio.Runner())
    cls = _async_class(backend)
    saver = runner.run(_entered(counted(cls).from_conn_string(address), stack, runner))
    count_on(saver, counts)
    return Opened(saver, Face(runner))


def _async_class(backend: str) -> Any:
    if backend == "async-sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        return AsyncSqliteSaver
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    return AsyncPostgresSaver


async def _entered(
    manager: AbstractAsyncContextManager[Any], stack: ExitStack, runner: asyncio.Runner
) -> Any:
    saver = await manager.__aenter__()
    stack.callback(lambda: runner.run(_left(manager)))
    await saver.setup()
    return saver


async def _left(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)
