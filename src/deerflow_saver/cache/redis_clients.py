"""Connections to Redis: one blocking client, and one async client per event loop."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from deerflow_saver.errors import InvalidConfigError

__all__ = ["Clients", "UnknownOptionError"]

_PATIENCE = 4
"""An awaited pipeline may take so many timeouts in all, however slowly its bytes come."""


class UnknownOptionError(InvalidConfigError):
    """An address has an option that redis-py does not read."""


class Clients:
    """Runs pipelines on either face.

    Args:
        url: as redis-py reads it.
        timeout: seconds for a connection, and for a reply.
        max_connections: per client, and who finds none waits; None for as many as needed.
        cluster: the address is that of one node of a Redis Cluster.

    Raises:
        InvalidConfigError: an address that is none.
        ImportError: redis-py is not installed.

    """

    def __init__(
        self, url: str, timeout: float, max_connections: int | None, *, cluster: bool = False
    ) -> None:
        try:
            import redis
            import redis.asyncio
            from redis.backoff import NoBackoff
            from redis.exceptions import ConnectionError as Lost
            from redis.retry import Retry
        except ImportError as error:
            msg = 'the Redis cache needs redis-py: pip install "deerflow-saver[redis]"'
            raise ImportError(msg) from error
        self._redis = redis
        self._url = url
        self._timeout = timeout
        self._options: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "max_connections": max_connections,
            "decode_responses": False,
        }
        # A connection that the server closed while it lay in the pool is no outage
        self._retries = {
            "sync": Retry(NoBackoff(), 1, (Lost,)),
            "async": redis.asyncio.retry.Retry(NoBackoff(), 1, (Lost,)),
        }
        self._cluster = cluster
        self._waits = False
        parsed: Any = redis.connection.parse_url
        try:
            given = parsed(url)
            self._waits = given.get("max_connections", max_connections) is not None
            client = self._single(redis, "sync")
            pool = client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # knows its options; connects nowhere
        except (ValueError, TypeError) as error:
            raise _refusal(url, error) from None
        self._check(given)
        # The client of a cluster asks for its nodes at once
        self._client = None if cluster else client
        self._lock = threading.Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    def _check(self, given: Mapping[str, Any]) -> None:
        """Refuse what redis-py would take for something else.

        Raises:
            InvalidConfigError: replies as text, a database that is no number, or what no cluster
                has.

        """
        if "decode_responses" in given:
            msg = "the cache needs replies as bytes: leave decode_responses out of its address"
            raise InvalidConfigError(msg)
        parts = urlsplit(self._url)
        named = "" if parts.scheme == "unix" else unquote(parts.path).strip("/")
        number = given.get("db") or 0
        if (named and not (named.isascii() and named.isdigit())) or number < 0:
            msg = (
                f"{named or number!r} is no Redis database: after the server's address comes its "
                "number, as in redis://localhost:6379/0"
            )
            raise InvalidConfigError(msg)
        if self._cluster and (number or self._waits or parts.scheme == "unix"):
            msg = "a Redis Cluster has no database but 0, no socket, and takes no max_connections"
            raise InvalidConfigError(msg)

    def _made(self, module: Any, face: str) -> Any:
        """A client of `redis` or `redis.asyncio`."""
        if not self._cluster:
            return self._single(module, face)
        options = {k: v for k, v in self._options.items() if k != "max_connections"}
        return module.RedisCluster.from_url(self._url, **options, retry=self._retries[face])

    def _single(self, module: Any, face: str) -> Any:
        options = {**self._options, "retry": self._retries[face]}
        if not self._waits:
            return module.Redis.from_pool(module.ConnectionPool.from_url(self._url, **options))
        pool = module.BlockingConnectionPool
        return module.Redis.from_pool(pool.from_url(self._url, timeout=self._timeout, **options))

    def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send all, then read all replies; an error reply is given, not raised."""
        made: Any = self._client_of_all().pipeline(transaction=False)
        with made as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute(raise_on_error=False))

    async def apipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """`pipeline` on the running loop's client."""
        client = self._client_here()
        async with (
            asyncio.timeout(self._timeout * _PATIENCE),
            client.pipeline(transaction=False) as pipeline,
        ):
            for command in commands:
                pipeline.execute_command(*command)
            return list(await pipeline.execute(raise_on_error=False))

    def _client_of_all(self) -> Any:
        """The blocking client, which all threads use."""
        with self._lock:
            if self._client is None:
                self._client = self._made(self._redis, "sync")
            return self._client

    def _client_here(self) -> Any:
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._by_loop.get(loop)
            if client is None:
                client = self._by_loop[loop] = self._made(self._redis.asyncio, "async")
            return client

    def close(self) -> None:
        """Close the blocking client's connections."""
        if self._client is not None:
            self._client.close()

    async def aclose(self) -> None:
        """Close those of the running loop, too."""
        self.close()
        with self._lock:
            client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


def _refusal(url: str, error: Exception) -> InvalidConfigError:
    """Why redis-py does not take an address; what it calls a keyword is an option here."""
    unknown = re.search(r"unexpected keyword argument '(.+)'", str(error))
    if unknown is None:
        return InvalidConfigError(f"not an address of a Redis server: {error}")
    scheme = urlsplit(url).scheme
    return UnknownOptionError(f"a {scheme}:// address has no option {unknown[1]!r}")
