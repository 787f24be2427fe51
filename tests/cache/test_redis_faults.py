"""Whatever happens to Redis: reads are right, nobody gets an error, an outage costs one timeout."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from deerflow_saver import CachedHistorySaver
from deerflow_saver.cache.redis import RedisHistoryCache
from support.savers import ASYNC_CASES, SYNC_CASES, Storage
from support.servers import RedisServer, redis_server
from support.threads import Line
from support.workers import cold, round_trips, same, worker

SQLITE = next(case for case in SYNC_CASES if case.name == "sqlite")
ASYNC_SQLITE = next(case for case in ASYNC_CASES if case.name == "async-sqlite")
SHORT = {"timeout": 0.05, "rest": 3600.0}
"""An outage that is noticed soon, and does not end by itself."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own, to break."""
    with redis_server() as started:
        yield started


def recover(saver: CachedHistorySaver) -> None:
    """As if the breaker's rest were over."""
    saver._self_core.shared.cache.store.breaker._until = 0.0


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@contextmanager
def stopped(server: RedisServer) -> Iterator[None]:
    """SIGSTOP: it accepts connections and answers nothing."""
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_killed_server_costs_one_attempt_and_one_warning(
    server: RedisServer, savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    a = worker(savers[0], server.url, **SHORT)
    line = Line(a)
    line.grow(5)
    b = cold(line, savers[1], server.url, **SHORT)
    assert same(line, b)
    server.stop()
    with round_trips(a) as sent:
        line.grow(5)
        assert same(line, a, line.ids)
    assert len(sent) == 1
    assert same(line, b, line.ids)
    line.saver = b
    b.get_tuple({"configurable": {"thread_id": line.thread_id}})
    line.grow(3)
    assert same(line, b, line.ids)
    assert len(warnings_of(caplog)) == 2  # one of each worker
    assert [saver.cache_info().outages for saver in (a, b)] == [1, 1]
    assert [saver.cache_info().errors for saver in (a, b)] == [0, 0]


def test_a_restarted_server_is_used_again(
    server: RedisServer, savers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    a = worker(savers[0], server.url, **SHORT)
    line = Line(a)
    line.grow(5)
    server.stop()
    line.grow(2)
    server.start()
    recover(a)
    line.grow(2)
    assert same(line, a, line.ids)
    assert same(line, cold(line, savers[1], server.url), line.ids)
    fresh = Line(a)
    fresh.grow(5)
    b = cold(fresh, savers[1], server.url)
    assert same(fresh, b)
    assert (b.cache_info().shared, b.cache_info().walks) == (1, 0)
    assert a.cache_info().outages == 1
    assert len(warnings_of(caplog)) == 1


def test_a_connection_lost_while_idle_is_no_outage(server: RedisServer, savers: list[Any]) -> None:
    a = worker(savers[0], server.url, **SHORT)
    line = Line(a)
    line.grow(3)
    server.stop()
    server.start()
    line.grow(3)
    assert same(line, a, line.ids)
    assert a.cache_info().outages == 0


def test_a_stopped_server_costs_one_timeout(server: RedisServer, savers: list[Any]) -> None:
    a = worker(savers[0], server.url, **SHORT)
    line = Line(a)
    line.grow(5)
    with stopped(server):
        with round_trips(a) as sent:
            line.grow(5)
            assert same(line, a, line.ids)
            b = cold(line, savers[1], server.url, **SHORT)
            assert same(line, b, line.ids)
        assert len(sent) == 1
    recover(a)
    recover(b)
    line.grow(2)
    for reader in (a, b, cold(line, savers[2], server.url)):
        assert same(line, reader, line.ids)


def test_what_could_not_be_forgotten_is_forgotten_with_everything_afterwards(
    server: RedisServer, savers: list[Any]
) -> None:
    a = worker(savers[0], server.url, **SHORT)
    line, other = Line(a), Line(a)
    line.grow(5)
    other.grow(5)
    b = worker(savers[1], server.url)
    assert same(line, b, line.ids)
    assert same(other, b, other.ids)
    with stopped(server):
        a.delete_thread(line.thread_id)
        assert same(line, a, line.ids)
    recover(a)
    assert same(other, a)  # the next contact pays what is owed
    for reader in (a, b, cold(line, savers[2], server.url)):
        assert same(line, reader, line.ids)
        assert same(other, reader, other.ids)


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru"])
def test_a_full_server(server: RedisServer, savers: list[Any], policy: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        a = worker(savers[0], server.url, timeout=2.0)
        line = Line(a)
        line.grow(5)
        client.config_set("maxmemory-policy", policy)
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", used if policy == "noeviction" else used + 40_000)
        lines = [line] + [Line(a) for _ in range(4)]
        for each in lines:
            each.grow(6, value="x" * 3000)
            for reader in (a, cold(each, savers[1], server.url, timeout=2.0)):
                assert same(each, reader, each.ids)
                assert reader.cache_info().errors == 0
        a.delete_thread(line.thread_id)
        assert same(line, cold(line, savers[1], server.url), line.ids)
        assert a.cache_info().outages == 0
        client.config_set("maxmemory", 0)
        fresh = Line(a)
        fresh.grow(4)
        b = cold(fresh, savers[2], server.url)
        assert same(fresh, b)
        assert b.cache_info().shared == 1


class Impostor:
    """Something that listens where Redis should, and answers each request with `answer`."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(self._answer(data))
            except OSError:
                return

    def close(self) -> None:
        self._socket.close()


ANSWERS = {
    "nothing": b"",
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "noise": bytes(range(256)),
    "ok to everything": b"+OK\r\n" * 20,
    "too much to come": b"$1000000000\r\nabc",
    "an endless array": b"*1000000000\r\n",
    "integers": b":1\r\n" * 20,
    "errors": b"-ERR no\r\n" * 20,
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n" * 20,
    "nulls": b"$-1\r\n" * 20,
    "nested": b"*2\r\n" * 50 + b"\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_garbage_for_answers(savers: list[Any], answer: bytes) -> None:
    impostor = Impostor(lambda _: answer)
    a = worker(savers[0], impostor.url, **SHORT)
    line = Line(a)
    line.grow(4)
    assert same(line, a, line.ids)
    assert same(line, cold(line, savers[1], impostor.url, **SHORT), line.ids)
    a.purge_thread(line.thread_id)
    a.cache_clear()
    impostor.close()


@pytest.mark.parametrize("answer", ["nothing", "noise", "ok to everything", "too much to come"])
async def test_garbage_for_answers_on_the_async_face(storage: Storage, answer: str) -> None:
    impostor = Impostor(lambda _: ANSWERS[answer])
    async with (
        ASYNC_SQLITE.aopen(storage) as saver,
        RedisHistoryCache.from_url(impostor.url, **SHORT) as cache,
    ):
        line = Line(CachedHistorySaver(saver, cache))
        await line.agrow(4)
        assert await line.ahistory() == await line.ahistory(saver)
        await line.saver.adelete_thread(line.thread_id)
        assert await line.ahistory() == await line.ahistory(saver)
    impostor.close()


class Proxy(Impostor):
    """A real server behind a wire that can be made to lose answers."""

    def __init__(self, server: RedisServer) -> None:
        self.lossy = False
        self._to = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        super().__init__(lambda _: b"")

    def _talk(self, connection: socket.socket) -> None:
        with connection, socket.create_connection(self._to) as behind:
            back = threading.Thread(target=self._back, args=(behind, connection), daemon=True)
            back.start()
            try:
                while data := connection.recv(65536):
                    behind.sendall(data)
            except OSError:
                return

    def _back(self, behind: socket.socket, connection: socket.socket) -> None:
        try:
            while data := behind.recv(65536):
                if not self.lossy:
                    connection.sendall(data)
        except OSError:
            return


def test_answers_that_come_too_late(server: RedisServer, savers: list[Any]) -> None:
    """What was asked is carried out, but nobody hears of it."""
    proxy = Proxy(server)
    a = worker(savers[0], proxy.url, **SHORT)
    line = Line(a)
    line.grow(4)
    b = cold(line, savers[1], server.url)
    assert same(line, b, line.ids)
    for _ in range(3):
        proxy.lossy = True
        recover(a)
        line.grow(2)
        proxy.lossy = False
        recover(a)
        line.grow(2)
        for reader in (a, b, cold(line, savers[2], server.url)):
            assert same(line, reader, line.ids)
    proxy.lossy = True
    recover(a)
    a.delete_thread(line.thread_id)
    assert same(line, b, line.ids)
    proxy.close()


def test_nothing_listens_there(savers: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    a = worker(savers[0], "redis://user:hidden@127.0.0.1:1", **SHORT)
    line = Line(a)
    line.grow(4)
    assert same(line, a, line.ids)
    assert len(warnings_of(caplog)) == 1
    assert "hidden" not in caplog.text
