"""LangGraph's own caches as the second tier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.cache.base import BaseCache
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache

from deerflow_saver import InvalidConfigError
from deerflow_saver.cache.langgraph import LangGraphHistoryCache
from support.savers import ASYNC_CASES, SYNC_CASES, Storage
from support.threads import Line
from support.workers import cold, same, worker

SQLITE = next(case for case in SYNC_CASES if case.name == "sqlite")
ASYNC_SQLITE = next(case for case in ASYNC_CASES if case.name == "async-sqlite")


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> BaseCache[Any]:
    """A cache that several workers have."""
    if request.param == "memory":
        return InMemoryCache()
    return SqliteCache(path=str(tmp_path / "cache.db"))


def over(shared: BaseCache[Any]) -> Any:
    """A second worker's cache on the same store."""
    return LangGraphHistoryCache(shared)


def test_a_cold_worker_reads_what_another_wrote(shared: Any, savers: list[Any]) -> None:
    line = Line(worker(savers[0], "", cache=over(shared)))
    line.grow(12)
    line.put(snapshot=["all"])
    line.grow(5)
    b = cold(line, savers[1], "", cache=over(shared))
    assert same(line, b)
    assert (b.cache_info().shared, b.cache_info().walks, b.cache_info().fetches) == (1, 0, 0)
    assert same(line, b, line.ids)
    line.grow(3)
    b.get_tuple(line.config())
    assert same(line, b)
    assert b.cache_info().errors == 0


def test_a_purge_reaches_every_worker(shared: Any, savers: list[Any]) -> None:
    a = worker(savers[0], "", cache=over(shared))
    line, other = Line(a), Line(a)
    line.grow(5)
    other.grow(5)
    b = cold(line, savers[1], "", cache=over(shared))
    assert same(line, b, line.ids)
    a.delete_thread(line.thread_id)
    assert line.history(b) == {"log": {"writes": []}}
    fresh = cold(other, savers[2], "", cache=over(shared))
    assert same(other, fresh)
    assert fresh.cache_info().shared == 1
    savers[2].delete_thread(other.thread_id)
    a.cache_clear()
    assert other.history(b) == {"log": {"writes": []}}


def test_what_arrives_after_a_purge_is_not_kept(shared: Any, savers: list[Any]) -> None:
    a = worker(savers[0], "", cache=over(shared))
    line = Line(a)
    line.grow(4)
    worker(savers[1], "", cache=over(shared)).purge_thread(line.thread_id)
    line.grow(1)  # in the epoch that has ended
    b = cold(line, savers[2], "", cache=over(shared))
    assert same(line, b, line.ids)
    line.grow(3)
    assert same(line, a, line.ids)
    assert same(line, b, line.ids)


async def test_on_the_async_face(storage: Storage) -> None:
    shared = InMemoryCache[Any]()
    async with ASYNC_SQLITE.aopen(storage) as first, ASYNC_SQLITE.aopen(storage) as second:
        line = Line(worker(first, "", cache=over(shared)))
        await line.agrow(8)
        b = worker(second, "", cache=over(shared))
        assert await line.ahistory(b) == await line.ahistory(second)
        assert (b.cache_info().shared, b.cache_info().walks) == (1, 0)
        await line.saver.adelete_thread(line.thread_id)
        assert await line.ahistory(b) == await line.ahistory(second)


class Broken(InMemoryCache[Any]):
    """Fails whatever is asked."""

    def get(self, keys: Any) -> Any:
        raise OSError

    set = clear = get


def test_a_broken_cache_is_an_outage(savers: list[Any]) -> None:
    a = worker(savers[0], "", cache=LangGraphHistoryCache(Broken(), rest=3600.0))
    line = Line(a)
    line.grow(5)
    assert same(line, a, line.ids)
    assert (a.cache_info().outages, a.cache_info().errors) == (1, 0)


class Garbage(InMemoryCache[Any]):
    """Answers everything with something."""

    def get(self, keys: Any) -> Any:
        return dict.fromkeys(keys, b"garbage")


def test_garbage_is_a_miss(savers: list[Any]) -> None:
    a = worker(savers[0], "", cache=LangGraphHistoryCache(Garbage()))
    line = Line(a)
    line.grow(5)
    assert same(line, a, line.ids)
    assert a.cache_info().errors == 0


def test_anything_else_is_refused() -> None:
    given: Any = {}
    with pytest.raises(InvalidConfigError, match="BaseCache"):
        LangGraphHistoryCache(given)
