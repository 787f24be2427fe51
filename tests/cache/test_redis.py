"""Workers that share a Redis: what one writes another reads, what one forgets is gone."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context
from pathlib import Path
from typing import Annotated, Any, TypedDict
from unittest.mock import Mock

import psycopg
import pytest
import redis
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row

from deerflow_saver import (
    CachedHistorySaver,
    InvalidConfigError,
    MemoryHistoryCache,
    NonHeadWriteError,
    allow_non_head_writes,
)
from deerflow_saver.cache.redis import RedisHistoryCache
from support.ciphers import Rotation
from support.savers import ASYNC_CASES, SYNC_CASES, SaverCase, Storage
from support.threads import Line
from support.workers import cold, round_trips, same, worker

SQLITE = next(case for case in SYNC_CASES if case.name == "sqlite")
SYNC = [case for case in SYNC_CASES if case.name in {"sqlite", "postgres", "postgres-pool"}]
ASYNC = [case for case in ASYNC_CASES if case.name in {"async-sqlite", "async-postgres"}]


class Pair:
    """Worker A with a line of its own, and worker B of the same database."""

    def __init__(self, case: SaverCase, storage: Storage, url: str) -> None:
        self._managers = [case.open(storage) for _ in range(3)]
        self.savers: list[Any] = [manager.__enter__() for manager in self._managers]
        self.url = url
        self.client = redis.Redis.from_url(url)
        self.a = worker(self.savers[0], url)
        self.line = Line(self.a)

    def cold(self, **options: Any) -> CachedHistorySaver:
        return cold(self.line, self.savers[1], self.url, **options)

    @property
    def hashes(self) -> list[bytes]:
        """The keys of threads."""
        return [key for key in self.client.scan_iter() if self.client.type(key) == b"hash"]

    def close(self) -> None:
        self.client.close()
        for manager in self._managers:
            manager.__exit__(None, None, None)


@pytest.fixture
def pair(storage: Storage, redis_database: str) -> Iterator[Pair]:
    made = Pair(SQLITE, storage, redis_database)
    yield made
    made.close()


@pytest.fixture(params=SYNC, ids=str)
def on_every_saver(
    request: pytest.FixtureRequest, storage: Storage, redis_database: str
) -> Iterator[Pair]:
    made = Pair(request.param, storage, redis_database)
    yield made
    made.close()


# -- what one worker has written ---------------------------------------------------------------


def test_a_cold_worker_reads_with_one_round_trip_and_no_call_of_the_saver(
    on_every_saver: Pair,
) -> None:
    pair = on_every_saver
    pair.line.grow(30)
    b = worker(pair.savers[1], pair.url)
    other = Line(pair.a)
    other.grow(2)
    other.history(b)  # b knows the database by now
    b.get_tuple(pair.line.config())
    before = b.cache_info()
    with round_trips(b) as sent:
        history = pair.line.history(b)
    assert history == pair.line.history(b.inner)
    assert len(history["log"]["writes"]) == 29
    after = b.cache_info()
    assert len(sent) == 1
    assert (after.walks, after.fetches) == (before.walks, before.fetches)
    assert after.shared == before.shared + 1


@pytest.mark.parametrize("case", ASYNC, ids=str)
async def test_both_workers_may_be_async(
    case: SaverCase, storage: Storage, redis_database: str
) -> None:
    async with (
        case.aopen(storage) as first,
        case.aopen(storage) as second,
        RedisHistoryCache.from_url(redis_database) as here,
        RedisHistoryCache.from_url(redis_database) as there,
    ):
        line = Line(CachedHistorySaver(first, here))
        await line.agrow(12)
        b = CachedHistorySaver(second, there)
        assert await line.ahistory(b) == await line.ahistory(second)
        assert (b.cache_info().shared, b.cache_info().walks) == (1, 0)
        await b.adelete_thread(line.thread_id)
        assert await line.ahistory(line.saver) == await line.ahistory(first)


def test_what_another_worker_added_is_caught_up_with_from_redis_alone(pair: Pair) -> None:
    pair.line.grow(20)
    b = pair.cold()
    assert same(pair.line, b)
    pair.line.grow(4)
    b.get_tuple(pair.line.config())
    with round_trips(b) as sent:
        assert same(pair.line, b)
    assert (b.cache_info().walks, b.cache_info().fetches, len(sent)) == (0, 0, 1)
    assert len(sent[0]) == 2  # generation, one script


def test_both_workers_may_take_turns(pair: Pair) -> None:
    b = worker(pair.savers[1], pair.url)
    for turn in range(6):
        pair.line.saver = (pair.a, b)[turn % 2]
        pair.line.saver.get_tuple({"configurable": {"thread_id": pair.line.thread_id}})
        pair.line.history(pair.line.saver)
        pair.line.grow(3)
        assert same(pair.line, pair.a, pair.line.ids)
        assert same(pair.line, b, pair.line.ids)
    assert same(pair.line, pair.cold(), pair.line.ids)


@pytest.mark.parametrize("case", SYNC[:2], ids=str)
def test_a_walk_stops_at_the_newest_snapshot(
    case: SaverCase, storage: Storage, redis_database: str
) -> None:
    pair = Pair(case, storage, redis_database)
    pair.line.grow(4)
    pair.line.write(["before"])
    first = pair.line.put(snapshot=["one"])
    pair.line.grow(3)
    pair.line.write(["again"])
    pair.line.put(snapshot=["two"])
    pair.line.grow(3)
    b = pair.cold()
    history = pair.line.history(b)
    assert history == pair.line.history(b.inner)
    assert history["log"]["seed"].value == ["two"]
    assert (b.cache_info().walks, b.cache_info().fetches) == (0, 0)
    # Of an older snapshot only its place is known, not its value
    child = pair.line.ids[pair.line.ids.index(first) + 2]
    assert same(pair.line, b, [child, *pair.line.ids])
    pair.close()


def test_runs_that_take_turns_on_two_workers_walk_never(pair: Pair) -> None:
    """A graph, from the first turn of the first thread of each process on."""
    b = worker(pair.savers[1], pair.url)
    graphs = [builder().compile(checkpointer=saver) for saver in (pair.a, b, pair.savers[2])]
    thread: Any = {"configurable": {"thread_id": "talk"}}
    for turn in range(6):
        graphs[turn % 2].invoke({"log": [f"turn {turn}"]}, thread)
        states = [graph.get_state(thread).values for graph in graphs]
        assert states == [states[2]] * 3
    assert len(states[0]["log"]) == 12
    infos = [saver.cache_info() for saver in (pair.a, b)]
    assert [(info.walks, info.fetches, info.errors) for info in infos] == [(0, 0, 0)] * 2
    assert all(info.shared > 0 for info in infos)


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


class Talk(TypedDict):
    """One delta channel."""

    log: Annotated[list[str], DeltaChannel(extend)]


def builder() -> StateGraph[Talk]:
    """One node that answers."""
    made = StateGraph(Talk)
    made.add_node("answer", lambda state: {"log": [f"answer to {state['log'][-1]}"]})
    made.add_edge(START, "answer")
    made.add_edge("answer", END)
    return made


def test_a_head_is_not_shared_before_it_is_final(pair: Pair) -> None:
    pair.line.grow(5)
    pair.line.write(["pending"])
    b = pair.cold()
    assert same(pair.line, b)
    stored = {f for key in pair.hashes for f in pair.client.hkeys(key)}
    head = pair.line.ids[-1].encode()
    assert {f for f in stored if head in f} == {b"l\0" + head}


def test_bytes_grow_with_what_was_written(pair: Pair) -> None:
    sizes = []
    for _ in range(2):
        pair.line.grow(100, value="x" * 128)
        sizes.append(sum(pair.client.memory_usage(key, samples=0) or 0 for key in pair.hashes))
    history = pair.line.history(pair.savers[1])
    serde = JsonPlusSerializer()
    written = sum(len(serde.dumps_typed(value)[1]) for *_, value in history["log"]["writes"])
    assert sizes[1] < 2.2 * sizes[0]
    assert sizes[1] < 3 * written


def test_encrypted_stays_encrypted(pair: Pair) -> None:
    for saver in pair.savers:
        saver.serde = EncryptedSerializer(Rotation())
    line = Line(worker(pair.savers[0], pair.url))
    line.grow(3, value="a secret ")
    line.write(["a secret of the head"])
    line.put(snapshot=["a secret kept"])
    line.grow(2)
    b = cold(line, pair.savers[1], pair.url)
    assert same(line, b, line.ids)
    assert b.cache_info().shared > 0
    for key in pair.hashes:
        assert all(b"secret" not in value for value in pair.client.hvals(key))


def test_allowlists_hold_for_what_was_shared(pair: Pair) -> None:
    """A reader decodes what was shared as it decodes a row."""
    pair.savers[1].serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    line = Line(pair.a)
    line.grow(2)
    line.write([Path("somewhere")], {1, 2}, (3, Point(1)))
    line.grow(1)
    b = cold(line, pair.savers[1], pair.url)
    assert line.history(b) == line.history(b.inner)
    assert line.history(b) != line.history(pair.savers[2])
    assert b.cache_info().shared == 1


class Point:
    """A type no allowlist names."""

    def __init__(self, x: int) -> None:
        self.x = x

    def model_dump(self) -> dict[str, int]:
        """As LangGraph asks for."""
        return {"x": self.x}


# -- what one worker forgets -------------------------------------------------------------------


@pytest.mark.parametrize("method", ["delete_thread", "purge_thread", "cache_clear"])
def test_a_purge_reaches_the_memory_of_every_worker(pair: Pair, method: str) -> None:
    pair.line.grow(5)
    b = pair.cold()
    assert same(pair.line, b, pair.line.ids)
    pair.savers[2].delete_thread(pair.line.thread_id)  # behind everybody's back
    if method == "cache_clear":
        pair.a.cache_clear()
    else:
        getattr(pair.a, method)(pair.line.thread_id)
    assert pair.line.history(b) == {"log": {"writes": []}}
    assert same(pair.line, b, pair.line.ids)
    assert same(pair.line, pair.a, pair.line.ids)


@pytest.mark.parametrize("name", ["t[1]", "*", "a", "a:sub", "{x}", "t\0", "é"])
def test_a_purge_is_of_one_thread_whatever_its_name(pair: Pair, name: str) -> None:
    names = ["t[1]", "t1", "*", "a", "a:sub", "ab", "{x}", "x", "t\0", "t", "é", "e"]
    lines = [Line(pair.a, thread_id=each) for each in names]
    for line in lines:
        line.grow(2)
    assert len(pair.hashes) == len(names)
    with round_trips(pair.a) as sent:
        pair.a.purge_thread(name)
    assert len(sent) == 1
    assert len(pair.hashes) == len(names) - 1
    for line in lines:
        b = cold(line, pair.savers[1], pair.url)
        assert same(line, b, line.ids)
        assert b.cache_info().walks == (2 if line.thread_id == name else 0)


def test_what_was_put_before_a_purge_does_not_arrive_after_it(pair: Pair) -> None:
    pair.line.grow(3)
    store = pair.a._self_core.shared.cache.store
    run = store.run
    late: list[Any] = []

    def held(request: Any) -> Any:
        if type(request).__name__ == "Store":
            late.append(request)
            return None
        return run(request)

    store.run = held
    pair.line.grow(1)
    store.run = run
    pair.cold().delete_thread(pair.line.thread_id)
    assert pair.hashes == []
    assert [run(request) for request in late] == [False]
    assert pair.hashes == []
    assert same(pair.line, pair.cold(), pair.line.ids)


def test_a_worker_whose_epoch_ended_begins_anew(pair: Pair) -> None:
    pair.line.grow(3)
    b = pair.cold()
    b.purge_thread(pair.line.thread_id)
    pair.line.grow(3)
    assert same(pair.line, pair.a, pair.line.ids)
    assert same(pair.line, b, pair.line.ids)
    assert same(pair.line, pair.cold(), pair.line.ids)


def test_an_override_ends_the_epoch(pair: Pair) -> None:
    pair.line.grow(6)
    b = pair.cold()
    assert same(pair.line, b, pair.line.ids)
    older = pair.line.ids[3]
    admin = worker(pair.savers[2], pair.url)
    with pytest.raises(NonHeadWriteError):
        admin.put_writes(*pair.line.write_arguments(["late"], checkpoint_id=older))
    assert pair.hashes
    with allow_non_head_writes(reason="a repair"):
        admin.put_writes(*pair.line.write_arguments(["late"], checkpoint_id=older))
    for reader in (pair.a, b, admin, pair.cold()):
        assert same(pair.line, reader, pair.line.ids)
    assert ["late"] in [value for *_, value in pair.line.history(b)["log"]["writes"]]


def test_without_a_guard_nothing_is_shared_and_delta_writes_end_the_epoch(pair: Pair) -> None:
    pair.line.grow(6)
    free = worker(pair.savers[1], pair.url, guard="off")
    free.get_tuple(pair.line.config())
    assert same(pair.line, free)
    pair.a.get_tuple(pair.line.config())
    assert same(pair.line, pair.a, pair.line.ids)
    free.put_writes(*pair.line.write_arguments(["late"], checkpoint_id=pair.line.ids[2]))
    assert pair.hashes == []
    assert same(pair.line, pair.a, pair.line.ids)
    alone = Line(free)
    alone.grow(3)
    assert [pair.client.hkeys(key) for key in pair.hashes] == [[b"e"]]


def test_without_a_guard_what_others_forget_is_forgotten_too(pair: Pair) -> None:
    pair.line.grow(6)
    for free in (worker(pair.savers[1], pair.url, guard=guard) for guard in ("off", "observe")):
        free.get_tuple(pair.line.config())
        assert same(pair.line, free, pair.line.ids)
        with allow_non_head_writes(reason="a test"):
            pair.line.write(["late"], checkpoint_id=pair.line.ids[2])
        assert same(pair.line, free, pair.line.ids)
    pair.a.delete_thread(pair.line.thread_id)
    assert same(pair.line, free, pair.line.ids)


def test_a_saver_of_another_kind_forgets_what_others_forget(pair: Pair) -> None:
    class Foreign(SqliteSaver):
        def get_tuple(self, config: Any) -> Any:
            return super().get_tuple(config)

    line = Line(worker(pair.savers[0], pair.url, key_prefix="one"))
    line.grow(6)
    foreign = worker(Foreign(pair.savers[1].conn), pair.url, key_prefix="one")
    assert same(line, foreign, line.ids)
    line.saver.delete_thread(line.thread_id)
    assert same(line, foreign, line.ids)


# -- two writers on one head -------------------------------------------------------------------


@pytest.mark.parametrize("reads", [False, True])
def test_what_another_worker_wrote_on_the_head_counts_whoever_puts_its_child(
    on_every_saver: Pair, *, reads: bool
) -> None:
    pair = on_every_saver
    pair.line.grow(4)
    b = worker(pair.savers[1], pair.url)
    if reads:
        Context().run(b.get_tuple, pair.line.config())
    ids = pair.line.ids
    Context().run(Line(b, pair.line.thread_id, "", ids).write, ["another's"])
    Context().run(pair.line.grow, 2)
    assert same(pair.line, pair.a, ids)
    assert same(pair.line, pair.cold(), ids)
    assert same(pair.line, b, ids)


def test_a_late_write_counts_though_its_child_was_only_read_from_redis(pair: Pair) -> None:
    pair.line.grow(6)
    *_, parent, child = pair.line.ids
    b = worker(pair.savers[1], pair.url)
    pair.line.history(b, child)
    b.get_tuple(pair.line.config(parent))
    assert same(pair.line, b, [child])
    b._self_core.shared.cache.store.breaker.failed()  # type: ignore[attr-defined]
    with allow_non_head_writes(reason="a test"):
        Line(b, pair.line.thread_id).write(["late"], checkpoint_id=parent)
    assert same(pair.line, b, [child])


def test_records_that_lead_nowhere_are_not_decoded(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.line.grow(40)
    (key,) = pair.hashes
    oldest = pair.line.ids[0].encode()
    fields = [name for name in pair.client.hkeys(key) if oldest in name]
    assert pair.client.hdel(key, *fields) == len(fields) > 0
    b = pair.cold()
    decoded = []
    loads = JsonPlusSerializer.loads_typed

    def counting(self: Any, data: Any) -> Any:
        if data[1].startswith(b"\x91"):  # a write: a list of one
            decoded.append(data)
        return loads(self, data)

    monkeypatch.setattr(JsonPlusSerializer, "loads_typed", counting)
    expected = pair.line.history(b.inner)
    assert len(decoded) == 39
    assert pair.line.history(b) == expected
    assert b.cache_info().walks == 1
    assert len(decoded) == 2 * 39


# -- Redis itself ------------------------------------------------------------------------------


def test_a_thread_lives_as_long_as_it_is_used(pair: Pair) -> None:
    line = Line(worker(pair.savers[0], pair.url, ttl=1000))
    line.grow(3)
    (key,) = pair.hashes
    pair.client.expire(key, 10)
    b = cold(line, pair.savers[1], pair.url, ttl=1000)
    line.history(b)
    assert 900 < pair.client.ttl(key) <= 1000
    pair.client.expire(key, 10)
    line.history(b)  # a hit of the memory
    assert 900 < pair.client.ttl(key) <= 1000


def test_the_expiry_of_the_generation_is_put_off_now_and_then(pair: Pair) -> None:
    line = Line(worker(pair.savers[0], pair.url, ttl=1000))
    line.grow(3)
    (place,) = (key for key in pair.client.scan_iter() if key.endswith(b":generation"))
    assert 900 < pair.client.ttl(place) <= 1000
    with round_trips(line.saver) as sent:
        line.history()
        line.history()
    assert [name for pipeline in sent for name, *_ in pipeline] == ["GET", "EVAL"] * 2
    pair.client.expire(place, 10)
    store = line.saver._self_core.shared.cache.store
    store._renewals.update(dict.fromkeys(store._renewals, 0.0))  # as if a minute had passed
    line.history()
    assert 900 < pair.client.ttl(place) <= 1000


def test_no_ttl_means_no_expiry(pair: Pair) -> None:
    Line(worker(pair.savers[0], pair.url, ttl=0)).grow(3)
    assert {pair.client.ttl(key) for key in pair.client.scan_iter()} == {-1}


@pytest.mark.parametrize(
    "garbage",
    [b"", b"1", b"1A\xff", b"no record at all", pickle.dumps(print), b"1K\x00" + b"\xc1" * 40],
)
def test_what_cannot_be_read_is_a_miss_and_is_deleted(pair: Pair, garbage: bytes) -> None:
    pair.line.grow(6)
    (key,) = pair.hashes
    field = b"r\0" + pair.line.ids[2].encode() + b"\0log"
    assert pair.client.hset(key, field, garbage) == 0
    b = pair.cold()
    assert same(pair.line, b, pair.line.ids)
    assert not pair.client.hexists(key, field)
    assert b.cache_info().errors == 0


def test_a_record_counts_nowhere_else(pair: Pair) -> None:
    pair.line.grow(6)
    (key,) = pair.hashes
    fields = [b"r\0" + cid.encode() + b"\0log" for cid in pair.line.ids[:-1]]
    pair.client.hset(key, fields[2], pair.client.hget(key, fields[3]))
    pair.client.rename(key, key)
    assert same(pair.line, pair.cold(), pair.line.ids)
    other = Line(pair.a)
    other.grow(6)
    second = next(k for k in pair.hashes if k != key)
    epoch = pair.client.hget(second, b"e")
    values = pair.client.hgetall(key)
    pair.client.hset(second, mapping={**values, b"e": epoch})
    assert same(other, cold(other, pair.savers[1], pair.url), other.ids)


def test_whoever_does_not_know_the_secret_writes_nothing_that_counts(pair: Pair) -> None:
    line = Line(worker(pair.savers[0], pair.url, secret="one", key_prefix="here"))
    line.grow(4)
    stranger = cold(line, pair.savers[1], pair.url, secret="two", key_prefix="here")
    assert same(line, stranger, line.ids)
    assert stranger.cache_info().shared == 0 or stranger.cache_info().walks > 0
    friend = cold(line, pair.savers[1], pair.url, secret="two", key_prefix="here")
    assert same(line, friend, line.ids)


def test_a_key_of_another_kind_is_removed(pair: Pair) -> None:
    pair.line.grow(3)
    (key,) = pair.hashes
    pair.client.delete(key)
    pair.client.set(key, "text")
    pair.line.grow(3)
    b = pair.cold()
    assert same(pair.line, b, pair.line.ids)
    assert pair.client.type(key) in {b"hash", b"none"}
    assert b.cache_info().outages == 0


def test_an_evicted_thread_is_a_miss(pair: Pair) -> None:
    pair.line.grow(5)
    pair.client.delete(*pair.hashes)
    pair.line.grow(2)
    assert same(pair.line, pair.a, pair.line.ids)
    assert same(pair.line, pair.cold(), pair.line.ids)


def test_a_checkpoint_that_is_put_again_ends_the_epoch(pair: Pair) -> None:
    pair.line.grow(3)
    (key,) = pair.hashes
    epoch = pair.client.hget(key, b"e")
    row = pair.a.get_tuple(pair.line.config())
    again = worker(pair.savers[1], pair.url)
    versions = row.checkpoint["channel_versions"]
    again.put(row.parent_config, row.checkpoint, row.metadata, versions)
    assert pair.client.hget(key, b"e") != epoch
    assert same(pair.line, pair.cold(), pair.line.ids)


# -- whose records they are --------------------------------------------------------------------


def test_databases_never_meet(redis_database: str, tmp_path: Path) -> None:
    savers = []
    for name in ("one", "two"):
        saver = SqliteSaver(sqlite3.connect(tmp_path / name, check_same_thread=False))
        saver.setup()
        savers.append(saver)
    savers += [InMemorySaver(), InMemorySaver()]
    for saver in savers:
        Line(worker(saver, redis_database), thread_id="the same").grow(2)
    with redis.Redis.from_url(redis_database) as client:
        prefixes = {key.split(b":")[2] for key in client.scan_iter()}
    assert len(prefixes) == 4


def test_the_prefix_is_the_opened_databases_and_holds_no_credential(
    postgres_database: str, redis_database: str, storage: Storage
) -> None:
    case = next(case for case in SYNC if case.name == "postgres-pool")
    alone = next(case for case in SYNC if case.name == "postgres")
    with case.open(storage) as pooled, alone.open(storage) as single:
        first, second = worker(pooled, redis_database), worker(single, redis_database)
        line = Line(first)
        line.grow(3)
        b = cold(line, single, redis_database)
        assert same(line, b)
        assert b.cache_info().shared == 1
        homes = [saver._self_core.shared.home.identity for saver in (first, b)]
        assert homes[0] == homes[1]
        assert len(homes[0].prefix) == 32
        assert second.inner is single


def test_a_database_that_does_not_tell_who_it_is_at_first_forgets_all_the_same(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.line.grow(6)
    assert same(pair.line, pair.a)
    b = worker(pair.savers[1], pair.url)
    with monkeypatch.context() as patched:
        patched.setattr("deerflow_saver._sharing.identity_of", Mock(side_effect=OSError))
        pair.line.history(b)
        b.delete_thread(pair.line.thread_id)
    Line(b).grow(1)
    b._self_core.shared.home.asked_again = 0.0
    Line(b).grow(1)
    assert same(pair.line, pair.a, pair.line.ids)


def test_a_table_is_the_same_by_whichever_search_path_it_is_found(
    storage: Storage, redis_database: str
) -> None:
    def opened(path: str) -> CachedHistorySaver:
        options: Any = {"autocommit": True, "row_factory": dict_row}
        connection = psycopg.connect(storage.postgres_uri, **options)
        connection.execute(f"SET search_path TO {path}")
        closing.callback(connection.close)
        saver = PostgresSaver(connection)
        if "," not in path:
            saver.setup()
        return worker(saver, redis_database)

    with ExitStack() as closing:
        with psycopg.connect(storage.postgres_uri, autocommit=True) as connection:
            for name in ("none", "one", "two"):
                connection.execute(f"CREATE SCHEMA {name}")
        first, second = opened("one"), opened("two")
        workers = [first, second, opened("none, one"), opened("none, two")]
        for saver in workers:
            Line(saver).grow(2)
        names = [saver._self_core.shared.home.identity.prefix for saver in workers]
        assert names[0] == names[2]
        assert names[1] == names[3]
        assert names[0] != names[1]


def test_a_named_database_is_called_by_its_name(pair: Pair) -> None:
    Line(worker(pair.savers[0], pair.url, key_prefix="orders")).grow(2)
    assert all(key.startswith(b"deerflow-saver:1:orders:") for key in pair.client.scan_iter())


# -- making one --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://localhost", {}),
        ("redis://localhost", {"ttl": -1}),
        ("redis://localhost", {"timeout": 0}),
        ("redis://localhost", {"rest": "5"}),
        ("redis://localhost", {"max_bytes": -1}),
    ],
)
def test_nonsense_is_refused_when_it_is_made(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError):
        RedisHistoryCache.from_url(url, **options)


def test_readers_wait_for_a_connection(pair: Pair) -> None:
    pair.line.grow(6)
    for url in (pair.url, f"{pair.url}?max_connections=1"):
        b = cold(pair.line, pair.savers[1], url, max_connections=1)
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda _, b=b: same(pair.line, b), range(64)))
        assert b.cache_info().outages == 0


async def test_tasks_wait_for_a_connection(storage: Storage, redis_database: str) -> None:
    async with (
        ASYNC[0].aopen(storage) as saver,
        RedisHistoryCache.from_url(redis_database, timeout=2.0, max_connections=1) as cache,
    ):
        line = Line(CachedHistorySaver(saver, cache))
        await line.agrow(6)
        await asyncio.gather(*(line.ahistory() for _ in range(32)))
        assert line.saver.cache_info().outages == 0


def test_a_name_that_is_no_text_is_no_outage(pair: Pair) -> None:
    pair.line.grow(2)
    asked = pair.line.config("\udc80")
    for saver in (pair.a, pair.a.inner):
        with pytest.raises(UnicodeEncodeError):
            saver.get_delta_channel_history(config=asked, channels=["log"])
    assert pair.a.cache_info().outages == 0


def test_a_cache_shows_where_it_is_and_no_password() -> None:
    cache = RedisHistoryCache.from_url("redis://user:secret@host:1/2?db=3")
    assert "redis://host:1/2" in repr(cache)
    assert "secret" not in repr(cache)
    assert isinstance(cache, MemoryHistoryCache)


def test_a_budget_of_zero_disables_both_tiers(pair: Pair) -> None:
    off = worker(pair.savers[1], pair.url, max_bytes=0)
    line = Line(off)
    line.grow(3)
    with round_trips(off) as sent:
        assert same(line, off)
    assert sent == []
    assert off.cache_info().bypasses > 0
