"""Every saver the scenarios are played on, each set up and open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["stage"]


@contextmanager
def stage(name: str, postgres_uri: str | None) -> Iterator[Stage]:
    """The stage of a saver, by its short name; `postgres_uri` names an empty database."""
    if name == "m":
        yield Stage(name, InMemorySaver())
    elif name in {"s", "as"}:
        with TemporaryDirectory(prefix="deerflow-saver-scenarios-") as folder:
            path = str(Path(folder) / "checkpoints.sqlite")
            with _sqlite(path) if name == "s" else _async_sqlite(path) as made:
                yield made
    elif postgres_uri is None:
        message = f"saver {name} needs the URI of a Postgres database"
        raise ValueError(message)
    else:
        with _postgres(postgres_uri) if name == "p" else _async_postgres(postgres_uri) as made:
            yield made


@contextmanager
def _sqlite(path: str) -> Iterator[Stage]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(path) as saver:
        saver.setup()
        yield Stage("s", saver, address=path)


@contextmanager
def _postgres(uri: str) -> Iterator[Stage]:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(uri) as saver:
        saver.setup()
        yield Stage("p", saver, address=uri)


@contextmanager
def _async_sqlite(path: str) -> Iterator[Stage]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    with _on_loop("as", AsyncSqliteSaver.from_conn_string, path) as made:
        yield made


@contextmanager
def _async_postgres(uri: str) -> Iterator[Stage]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    with _on_loop("ap", AsyncPostgresSaver.from_conn_string, uri) as made:
        yield made


@contextmanager
def _on_loop(name: str, opener: Any, address: str) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        opened: AbstractAsyncContextManager[Any]

        async def enter() -> Any:
            nonlocal opened
            opened = opener(address)
            saver = await opened.__aenter__()
            await saver.setup()
            return saver

        saver = runner.run(enter())
        try:
            yield Stage(name, saver, runner.get_loop(), address)
        finally:
            runner.run(opened.__aexit__(None, None, None))
