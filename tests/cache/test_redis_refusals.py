"""A Redis that works and refuses: users without the rights, nodes of a cluster; and clusters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from deerflow_saver import InvalidConfigError, open_cache
from deerflow_saver.cache.redis import RedisHistoryCache
from support.savers import ASYNC_CASES, SYNC_CASES, Storage
from support.servers import RedisServer, redis_cluster, redis_server
from support.threads import CHANNEL, Line
from support.workers import cold, round_trips, same, worker

SQLITE = next(case for case in SYNC_CASES if case.name == "sqlite")
ASYNC_SQLITE = next(case for case in ASYNC_CASES if case.name == "async-sqlite")
RIGHTS = ["+eval", "+get", "+set", "+hget", "+hset", "+hdel", "+expire", "+unlink"]
"""Those that docs/caching.md names."""
LONG = {"rest": 3600.0}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    with redis_cluster() as urls:
        yield urls


def user(server: RedisServer, *rights: str, keys: str = "~deerflow-saver:*") -> str:
    """The address for a user who may do this and no more."""
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
        admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">hush", keys, *rights)
    return server.url.replace("://", "://app:hush@")


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]


def test_the_documented_rights_are_enough(
    server: RedisServer, savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    url = user(server, *RIGHTS)
    a = worker(savers[0], url)
    line = Line(a)
    line.grow(5)
    b = cold(line, savers[1], url)
    assert same(line, b, line.ids)
    assert b.cache_info().shared > 0
    a.delete_thread(line.thread_id)
    assert line.history(b, line.ids[-1]) == line.history(b.inner, line.ids[-1])
    b.cache_clear()
    assert not errors_of(caplog)
    assert a.cache_info().outages == b.cache_info().outages == 0


@pytest.mark.parametrize("missing", sorted({*RIGHTS} - {"+set", "+hdel", "+unlink"}))
def test_without_one_of_them_every_read_is_the_wrapped_savers(
    missing: str, server: RedisServer, savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    all_rights = worker(savers[0], user(server, *RIGHTS))
    line = Line(all_rights)
    line.grow(5)
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "less", "on", ">hush", "~*", *RIGHTS)
        admin.execute_command("ACL", "SETUSER", "less", missing.replace("+", "-"))
    b = cold(line, savers[1], server.url.replace("://", "://less:hush@"), **LONG)
    assert same(line, b, line.ids)
    # What others delete is not served from a memory that never hears of it
    all_rights.delete_thread(line.thread_id)
    assert same(line, b, line.ids)
    line.saver = b
    Line(b, thread_id="another").grow(3)
    told = errors_of(caplog)
    if missing == "+hset":
        assert b.cache_info().outages <= 1  # as where Redis is full: no epoch can be kept
    else:
        assert len(told) == 1
        assert "refuses to work" in told[0]
        assert "docs/caching.md" in told[0]
        assert "hush" not in told[0]


def test_a_refusal_costs_one_attempt_and_one_line(
    server: RedisServer, savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    b = worker(savers[0], user(server, "+get", "+set", "+expire"), **LONG)
    line = Line(b)
    with round_trips(b) as sent:
        line.grow(3)
        assert same(line, b, line.ids)
    assert len(sent) == 2  # the first contact with a database makes its generation
    assert len(errors_of(caplog)) == 1


def test_when_the_rights_are_given_the_work_goes_on(server: RedisServer, savers: list[Any]) -> None:
    url = user(server, "+get", "+expire")
    a = worker(savers[0], url, **LONG)
    line = Line(a)
    line.grow(3)
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", *RIGHTS)
    a._self_core.shared.cache.store.breaker._until = 0.0  # type: ignore[attr-defined]
    other = Line(a, thread_id="other")
    other.grow(5)
    b = cold(other, savers[1], url)
    assert same(other, b, other.ids)
    assert b.cache_info().shared > 0
    a.get_delta_channel_history(config=other.config(), channels=[CHANNEL])
    assert a.cache_info().hits > 0


def test_a_wrong_password_is_named_and_nothing_wrong_is_read(
    server: RedisServer, savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    url = user(server, *RIGHTS).replace("hush", "guessed")
    b = worker(savers[0], url, **LONG)
    line = Line(b)
    line.grow(3)
    assert same(line, b, line.ids)
    (told,) = errors_of(caplog)
    assert "the right user and password" in told
    assert "guessed" not in told


def test_one_node_of_a_cluster_is_named_and_nothing_wrong_is_read(
    nodes: list[str], savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    workers = [worker(saver, url, **LONG) for saver, url in zip(savers, nodes, strict=False)]
    for number in range(8):  # one of them lies on the other node
        line = Line(workers[0], thread_id=str(number))
        line.grow(3)
        for one in workers:
            assert same(line, one, line.ids)
    told = errors_of(caplog)
    assert told
    assert all("cluster=true" in text for text in told)


def test_a_cluster_is_shared_through_any_of_its_nodes(
    nodes: list[str], savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = (worker(saver, url, cluster=True) for saver, url in zip(savers, nodes, strict=False))
    lines = [Line(a, thread_id=str(number)) for number in range(6)]
    for line in lines:
        line.grow(5)
        b.get_tuple({"configurable": {"thread_id": line.thread_id}})
        assert same(line, b, line.ids)
    assert b.cache_info().shared >= 6
    for line in lines:
        a.delete_thread(line.thread_id)
        assert same(line, b, line.ids)
    a.cache_clear()
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    for url in nodes:  # both took part
        with redis.Redis.from_url(url) as client:
            assert "cmdstat_eval" in client.info("commandstats")
    for one in (a, b):
        one._self_core.shared.cache.close()  # type: ignore[attr-defined]


async def test_a_cluster_is_shared_on_the_async_face(nodes: list[str], storage: Storage) -> None:
    url = f"{nodes[1]}/0?cluster=true&timeout=2"
    async with (
        ASYNC_SQLITE.aopen(storage) as first,
        ASYNC_SQLITE.aopen(storage) as second,
        open_cache(url) as here,  # type: ignore[attr-defined]
        open_cache(url) as there,  # type: ignore[attr-defined]
    ):
        a, b = worker(first, "", cache=here), worker(second, "", cache=there)
        line = Line(a)
        await line.agrow(5)
        await b.aget_tuple({"configurable": {"thread_id": line.thread_id}})
        for cid in (*line.ids, None):
            assert await line.ahistory(b, cid) == await line.ahistory(second, cid)
        assert b.cache_info().shared > 0
        assert a.cache_info().outages == b.cache_info().outages == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://user:hush@h/abc", "'abc' is no Redis database"),
        ("redis://h/1/2", "'1/2' is no Redis database"),
        ("redis://h/-1", "'-1' is no Redis database"),
        ("rediss://h/db0", "'db0' is no Redis database"),
        ("redis://h?db=-1", "-1 is no Redis database"),
        ("redis://h?db=x", "db"),
        ("redis://h/1?cluster=true", "no database but 0"),
        ("redis://h?cluster=true&max_connections=3", "max_connections"),
        ("unix:///run/redis.sock?cluster=true", "no socket"),
        ("redis://h?cluster=maybe", "true or false"),
    ],
)
def test_a_database_that_is_none_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        open_cache(url)
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://h", "redis://h/", "redis://h/7", "unix:///a/b?db=3"])
def test_a_database_may_be_a_number_or_nothing(url: str) -> None:
    assert isinstance(open_cache(url), RedisHistoryCache)
