"""Whoever holds a wrapper cannot tell it from the saver: attributes, copies, context managers."""

from __future__ import annotations

import copy
import pickle
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg import Connection

from deerflow_saver import CachedHistorySaver, MemoryHistoryCache
from support.conversation import assert_reads_equal, conversation, thread, turns
from support.savers import (
    CONNECTION,
    SaverCase,
    Storage,
    every_async_case,
    every_case,
    every_sync_case,
)

ROOT: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


class Tagging(JsonPlusSerializer):
    """A serialiser that can be told from others by what it reads."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        value = super().loads_typed(data)
        return f"{self.tag}:{value}" if isinstance(value, str) else value


def stored(saver: Any) -> Any:
    """A checkpoint whose history has one write, and its config."""
    config = saver.put(ROOT, empty_checkpoint(), {"source": "input"}, {})
    saver.put_writes(config, [("log", "a")], "task")
    return saver.put(config, empty_checkpoint(), {"source": "loop"}, {})


def values(saver: Any, config: Any) -> list[Any]:
    history = saver.get_delta_channel_history(config=config, channels=["log"])
    return [value for _, _, value in history["log"]["writes"]]


@every_case
async def test_a_wrapper_is_an_instance_of_its_savers_class(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        saver = CachedHistorySaver(raw)
        assert isinstance(saver, type(raw))
        assert isinstance(saver, BaseCheckpointSaver)
        assert isinstance(saver, CachedHistorySaver)
        assert saver.__class__ is type(raw)
        assert saver.inner is raw


def test_a_postgres_wrapper_is_a_postgres_saver(postgres_database: str) -> None:
    with PostgresSaver.from_conn_string(postgres_database) as raw:
        saver = CachedHistorySaver(raw)
        assert isinstance(saver, PostgresSaver)
        assert isinstance(saver, BaseCheckpointSaver)
        assert not isinstance(saver, SqliteSaver)


@every_case
async def test_public_attributes_are_the_savers(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        for name in ("serde", "conn", "lock", "storage", "blobs", "writes", "pipe", "loop"):
            assert hasattr(saver, name) is hasattr(raw, name), name
            if hasattr(raw, name):
                assert getattr(saver, name) is getattr(raw, name), name
        assert saver.config_specs == raw.config_specs
        assert {name for name in dir(raw) if not name.startswith("__")} <= set(dir(saver))


@every_case
async def test_versions_come_from_the_saver(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        for current in (None, raw.get_next_version(None, None)):
            ours = saver.get_next_version(current, None)
            theirs = raw.get_next_version(current, None)
            assert type(ours) is type(theirs)
            assert str(ours).partition(".")[0] == str(theirs).partition(".")[0]


def test_setup_cursor_and_lock_work_through_the_wrapper(postgres_database: str) -> None:
    with Connection.connect(postgres_database, **CONNECTION) as connection:
        saver: Any = CachedHistorySaver(PostgresSaver(connection))
        saver.setup()
        assert saver.conn is connection
        with saver.lock:
            pass
        with saver._cursor() as cursor:
            assert cursor.execute("SELECT count(*) FROM checkpoints").fetchone() == {"count": 0}


def test_a_sqlite_cursor_works_through_the_wrapper() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        saver: Any = CachedHistorySaver(SqliteSaver(connection))
        with saver.cursor() as cursor:
            assert cursor.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)
        assert saver.is_setup is saver.inner.is_setup is True


def test_attributes_are_set_and_deleted_on_the_saver() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    saver.tag = "ours"
    assert raw.tag == "ours"  # type: ignore[attr-defined]
    raw.tag = "theirs"  # type: ignore[attr-defined]
    assert saver.tag == "theirs"
    del saver.tag
    assert not hasattr(raw, "tag")
    with pytest.raises(AttributeError, match="tag"):
        _ = saver.tag
    with pytest.raises(AttributeError, match="tag"):
        del saver.tag


def test_the_serialiser_is_set_on_the_saver_and_used_from_then_on() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    assert values(saver, head) == values(raw, head) == ["a"]
    for tag in ("x", "y"):
        serde = Tagging(tag)
        saver.serde = serde
        assert raw.serde is serde
        assert values(saver, head) == values(raw, head) == [f"{tag}:a"]


def test_a_serialiser_put_on_the_saver_itself_is_noticed() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    assert values(saver, head) == ["a"]
    raw.serde = Tagging("x")
    assert values(saver, head) == ["x:a"]


def test_many_short_lived_serialisers_never_share_what_they_read() -> None:
    """A serialiser may get the address of one that is gone."""
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    plain = raw.serde
    for number in range(50):
        saver.serde = Tagging(str(number))
        assert values(saver, head) == [f"{number}:a"]
        saver.serde = plain
        assert values(saver, head) == ["a"]


@every_sync_case
def test_with_gives_the_wrapper(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        if not hasattr(type(raw), "__enter__"):
            with pytest.raises(TypeError, match="context manager"), saver:
                pass
            return
        with saver as entered:
            assert entered is saver
            stored(entered)


def test_with_leaves_the_saver_with_the_error_in_hand() -> None:
    class Swallowing(InMemorySaver):
        left: Any = None

        def __exit__(self, *exc: object) -> bool:
            self.left = exc
            return True

    raw = Swallowing()
    with CachedHistorySaver(raw):
        raise ValueError
    assert raw.left[0] is ValueError


@every_async_case
async def test_async_with_gives_the_wrapper(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        if not hasattr(type(raw), "__aenter__"):
            with pytest.raises(TypeError, match="context manager"):
                async with saver:
                    pass
            return
        async with saver as entered:
            assert entered is saver


async def test_from_conn_string_can_be_wrapped_where_it_is_used(storage: Storage) -> None:
    with SqliteSaver.from_conn_string(storage.sqlite_path) as raw:
        saver: Any = CachedHistorySaver(raw)
        head = stored(saver)
    async with AsyncSqliteSaver.from_conn_string(storage.sqlite_path) as araw:
        asaver: Any = CachedHistorySaver(araw)
        history = await asaver.aget_delta_channel_history(config=head, channels=["log"])
    assert history == {"log": {"writes": [("task", "log", "a")]}}


def test_a_copy_shares_cache_and_counters() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    twin = copy.copy(saver)
    assert isinstance(twin, CachedHistorySaver)
    assert type(twin) is type(saver)
    assert twin is not saver
    assert twin.inner is not raw
    assert twin.storage is raw.storage
    head = stored(saver)
    assert values(saver, head) == values(twin, head) == ["a"]
    values(twin, head)
    assert twin.cache_info() == saver.cache_info()
    assert saver.cache_info().hits == 2
    twin.cache_clear()
    assert saver.cache_info().entries == 0


def test_a_copys_serialiser_is_its_own() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    original = raw.serde
    twin = copy.copy(saver)
    twin.serde = Tagging("x")
    assert saver.serde is raw.serde is original
    for _ in range(2):
        assert values(saver, head) == ["a"]
        assert values(twin, head) == ["x:a"]


def test_what_a_copy_writes_the_original_reads() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    twin = copy.copy(copy.copy(saver))
    for writer, reader in ((saver, twin), (twin, saver)):
        for _ in turns(writer, thread(), count=1):
            assert_reads_equal(reader, raw, thread())


def test_a_deep_copy_has_rows_and_cache_of_its_own() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    for _ in range(2):
        assert values(saver, head) == ["a"]
    twin = copy.deepcopy(saver)
    assert isinstance(twin, CachedHistorySaver)
    assert twin.storage is not raw.storage
    assert twin.cache_info().hits == twin.cache_info().entries == 0
    twin.delete_thread("1")
    assert values(twin, head) == []
    before = saver.cache_info()
    assert values(saver, head) == values(raw, head) == ["a"]
    assert saver.cache_info().hits == before.hits + 1


def test_what_cannot_be_deep_copied_says_so_as_the_saver_does() -> None:
    with SqliteSaver.from_conn_string(":memory:") as raw:
        with pytest.raises(TypeError) as theirs:
            copy.deepcopy(raw)
        with pytest.raises(TypeError) as ours:
            copy.deepcopy(CachedHistorySaver(raw))
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_is_refused_with_a_reason(protocol: int) -> None:
    saver = CachedHistorySaver(InMemorySaver())
    with pytest.raises(TypeError, match=r"CachedHistorySaver cannot be pickled.*wrap it there"):
        pickle.dumps(saver, protocol)


def test_repr_and_str_name_both_savers() -> None:
    raw = InMemorySaver()
    saver = CachedHistorySaver(raw)
    for text in (repr(saver), str(saver)):
        assert "CachedHistorySaver" in text
        assert repr(raw) in text
    assert "InMemorySaver" in type(saver).__name__


def test_an_f_string_names_both_savers() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    assert f"{saver}" == repr(saver)


def test_the_wrapper_is_hashable_and_equal_to_itself_alone() -> None:
    raw = InMemorySaver()
    saver, other = CachedHistorySaver(raw), CachedHistorySaver(InMemorySaver())
    assert saver == saver  # noqa: PLR0124 - the comparison is what is tested
    assert saver != other
    assert len({saver, other}) == 2
    assert saver not in (None, True, False)
    assert bool(saver)


@every_sync_case
def test_every_other_method_answers_as_the_savers(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        for _ in turns(saver, thread(), count=1):
            pass
        assert saver.get(thread()) == raw.get(thread())
        head = saver.get_tuple(thread()).config
        for arguments in ({"limit": 2}, {"before": head}, {"filter": {"source": "loop"}}):
            found = list(saver.list(thread(), **arguments))
            assert found == list(raw.list(thread(), **arguments))
            assert found
        assert list(saver.list(None)) == list(raw.list(None))


@every_sync_case
def test_two_wrappers_of_one_saver_read_what_the_other_wrote(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as raw:
        cache = MemoryHistoryCache()
        one: Any = CachedHistorySaver(raw, cache, key_prefix="database")
        two: Any = CachedHistorySaver(raw, cache, key_prefix="database")
        for writer in (one, two):
            for _ in turns(writer, thread(), count=1):
                assert_reads_equal(one, raw, thread())
                assert_reads_equal(two, raw, thread())


def test_wrappers_of_different_savers_keep_apart_in_one_cache() -> None:
    cache = MemoryHistoryCache()
    one: Any = CachedHistorySaver(InMemorySaver(), cache)
    two: Any = CachedHistorySaver(InMemorySaver(), cache)
    for _ in turns(one, thread()):
        pass
    head = conversation(one).get_state(thread()).config
    assert one.get_delta_channel_history(config=head, channels=["notes"])["notes"]["writes"]
    assert two.get_delta_channel_history(config=head, channels=["notes"]) == {
        "notes": {"writes": []}
    }
