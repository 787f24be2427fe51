"""Savers for `--saver`, as an application's module offers them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from deerflow_saver import CachedHistorySaver


def path() -> str:
    return os.environ["OFFERED_PATH"]


raw = InMemorySaver


def wrapped() -> CachedHistorySaver:
    return CachedHistorySaver(InMemorySaver())


def unguarded() -> CachedHistorySaver:
    return CachedHistorySaver(InMemorySaver(), guard="off")


def unfixed() -> CachedHistorySaver:
    return CachedHistorySaver(InMemorySaver(), fixes="off")


@contextmanager
def sqlite() -> Iterator[CachedHistorySaver]:
    with SqliteSaver.from_conn_string(path()) as saver:
        yield CachedHistorySaver(saver)


@asynccontextmanager
async def async_sqlite() -> AsyncIterator[CachedHistorySaver]:
    async with AsyncSqliteSaver.from_conn_string(path()) as saver:
        yield CachedHistorySaver(saver)


class Starred(BaseCheckpointSaver[Any]):
    """Forwards everything, and hides what LangGraph looks for."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def put(self, *args: Any) -> Any:
        return self.inner.put(*args)

    def put_writes(self, *args: Any) -> Any:
        return self.inner.put_writes(*args)

    def get_tuple(self, config: Any) -> Any:
        return self.inner.get_tuple(config)

    def get_delta_channel_history(self, **given: Any) -> Any:
        return self.inner.get_delta_channel_history(**given)


class Hoarding(Starred):
    """Has a history of its own that asks nobody."""

    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        return {channel: {"writes": []} for channel in channels}


def starred() -> Starred:
    return Starred(wrapped())


def hoarding() -> Hoarding:
    return Hoarding(wrapped())


class ShallowPostgresSaver(InMemorySaver):
    """Named like the one that keeps no ancestors."""


def shallow() -> ShallowPostgresSaver:
    return ShallowPostgresSaver()


class Undeletable(InMemorySaver):
    def delete_thread(self, thread_id: str) -> None:
        raise NotImplementedError


class Failing(InMemorySaver):
    def put_writes(
        self, config: Any, writes: Sequence[Any], task_id: str, task_path: str = ""
    ) -> None:
        message = "disk full"
        raise OSError(message)


undeletable = Undeletable
failing = Failing
