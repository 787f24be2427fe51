"""Savers of other people, each with a storage of its own: wrapped, they read as they do raw.

Some of them replay parallel writes in another order than LangGraph asks for. Theirs is the
order that counts: equality is the promise, not repair.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any

import lmdb
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph_checkpoint_lmdb import AsyncLMDBSaver, LMDBSaver
from langgraph_checkpoint_objectstorage import ObjectStorageSaver
from langgraph_checkpoint_plainredis import AsyncRedisSaver, RedisSaver

from deerflow_saver import CachedHistorySaver, MemoryHistoryCache
from support.conversation import (
    aassert_reads_equal,
    assert_reads_equal,
    aturns,
    conversation,
    question,
    read_all,
    thread,
    turns,
)

Saver = BaseCheckpointSaver[Any]
Opener = Callable[[Path, pytest.FixtureRequest], AbstractContextManager[Saver]]
AsyncOpener = Callable[[Path, pytest.FixtureRequest], AbstractAsyncContextManager[Saver]]


@contextmanager
def _environment(folder: Path) -> Iterator[lmdb.Environment]:
    with lmdb.open(str(folder / "lmdb"), max_dbs=2, map_size=1 << 26) as environment:
        yield environment


@contextmanager
def _lmdb(folder: Path, request: pytest.FixtureRequest) -> Iterator[Saver]:
    with _environment(folder) as environment:
        yield LMDBSaver(environment)


@asynccontextmanager
async def _async_lmdb(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Saver]:
    with _environment(folder) as environment, ThreadPoolExecutor(2) as executor:
        yield AsyncLMDBSaver(environment, executor=executor)


@contextmanager
def _objects(folder: Path, request: pytest.FixtureRequest) -> Iterator[Saver]:
    saver = ObjectStorageSaver.from_conn_string((folder / "objects").as_uri())
    saver.get_tuple(thread("nobody"))  # two threads at once would make two loops and lose one
    yield saver
    # It leaves the loop behind its sync face to the garbage collector, which complains.
    loop, runner = saver._bg_loop, saver._bg_thread
    if loop is not None and runner is not None:
        loop.call_soon_threadsafe(loop.stop)
        runner.join()
        loop.close()


@asynccontextmanager
async def _async_objects(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Saver]:
    yield ObjectStorageSaver.from_conn_string((folder / "objects").as_uri())


@contextmanager
def _plain_redis(folder: Path, request: pytest.FixtureRequest) -> Iterator[Saver]:
    saver = RedisSaver(url=request.getfixturevalue("redis_database"))
    yield saver
    saver.close()


@asynccontextmanager
async def _async_plain_redis(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Saver]:
    saver = AsyncRedisSaver(url=request.getfixturevalue("redis_database"))
    yield saver
    await saver.aclose()


every_saver = pytest.mark.parametrize("opener", [_lmdb, _objects, _plain_redis])
every_async_saver = pytest.mark.parametrize(
    "opener", [_async_lmdb, _async_objects, _async_plain_redis]
)


@every_saver
def test_reads_equal_after_every_turn(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opener(tmp_path, request) as raw:
        saver = CachedHistorySaver(raw)
        for _ in turns(saver, thread()):
            assert_reads_equal(saver, raw, thread())
        assert saver.cache_info().errors == 0


@every_async_saver
async def test_async_reads_equal_after_every_turn(
    opener: AsyncOpener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opener(tmp_path, request) as raw:
        saver = CachedHistorySaver(raw)
        async for _ in aturns(saver, thread()):
            await aassert_reads_equal(saver, raw, thread())
        assert saver.cache_info().errors == 0


@every_saver
def test_a_new_wrapper_over_old_rows_reads_what_is_there(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opener(tmp_path, request) as raw:
        for _ in turns(raw, thread(), count=2):
            pass
        assert_reads_equal(CachedHistorySaver(raw), raw, thread())


@every_saver
def test_turns_of_another_process_show(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opener(tmp_path, request) as raw:
        saver = CachedHistorySaver(raw)
        for number, writer in enumerate([saver, raw, saver]):
            conversation(writer).invoke(question(number), thread())
            assert_reads_equal(saver, raw, thread())


@every_saver
def test_a_tiny_budget_changes_nothing(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opener(tmp_path, request) as raw:
        saver = CachedHistorySaver(raw, MemoryHistoryCache(20_000))
        for _ in turns(saver, thread(), count=2):
            assert_reads_equal(saver, raw, thread())


@pytest.mark.parametrize("opener", [_lmdb, _objects, _plain_redis])
def test_a_state_written_at_an_earlier_checkpoint_reads_equal(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opener(tmp_path, request) as raw:
        saver = CachedHistorySaver(raw, guard="off")
        graph = conversation(saver)
        for _ in turns(saver, thread(), count=2):
            pass
        earlier = list(graph.get_state_history(thread()))[3]
        graph.update_state(earlier.config, question(7), as_node="answer")
        assert_reads_equal(saver, raw, thread())


@pytest.mark.parametrize("opener", [_objects, _plain_redis])
def test_a_deleted_thread_is_gone(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opener(tmp_path, request) as raw:
        saver = CachedHistorySaver(raw)
        for _ in turns(saver, thread(), count=2):
            assert_reads_equal(saver, raw, thread())
        last = conversation(saver).get_state(thread()).config
        saver.delete_thread("thread")
        assert read_all(saver, thread())["rows"] == []
        assert saver.get_delta_channel_history(config=last, channels=["messages"]) == {
            "messages": {"writes": []}
        }
        for _ in turns(saver, thread(), count=1):
            assert_reads_equal(saver, raw, thread())


@every_saver
def test_repeated_reads_read_no_ancestor_again(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opener(tmp_path, request) as raw:
        saver = CachedHistorySaver(raw)
        for _ in turns(saver, thread(), count=2):
            pass
        head = conversation(saver).get_state(thread()).config
        saver.get_delta_channel_history(config=head, channels=["messages", "notes"])
        before = saver.cache_info()
        for _ in range(5):
            saver.get_delta_channel_history(config=head, channels=["messages", "notes"])
        after = saver.cache_info()
        assert after.hits - before.hits == 5
        assert (after.misses, after.fetches) == (before.misses, before.fetches)
