"""Connections to Redis: one blocking client, and one async client per event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from deerflow_saver.errors import InvalidConfigError

__all__ = ["Clients"]

_PATIENCE = 4
"""An awaited pipeline may take so many timeouts in all, however slowly its bytes come."""


class Clients:
    """Runs pipelines on either face.

    Args:
        url: as redis-py reads it.
        timeout: seconds for a connection, and for a reply.
        max_connections: per client, and who finds none waits; None for as many as needed.

    Raises:
        InvalidConfigError: an address that is none.
        ImportError: redis-py is not installed.

    """

    def __init__(self, url: str, timeout: float, max_connections: int | None) -> None:
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
        parsed: Any = redis.connection.parse_url
        try:
            given = parsed(url)
            self._waits = given.get("max_connections", max_connections) is not None
            self._client = self._made(redis, "sync")
            pool = self._client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # knows its options; connects nowhere
        except (ValueError, TypeError) as error:
            msg = f"not an address of a Redis server: {error}"
            raise InvalidConfigError(msg) from None
        if "decode_responses" in given:
            msg = "the cache needs replies as bytes: leave decode_responses out of its address"
            raise InvalidConfigError(msg)
        self._lock = threading.Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    def _made(self, module: Any, face: str) -> Any:
        """A client of `redis` or `redis.asyncio`."""
        options = {**self._options, "retry": self._retries[face]}
        if not self._waits:
            return module.Redis.from_pool(module.ConnectionPool.from_url(self._url, **options))
        pool = module.BlockingConnectionPool
        return module.Redis.from_pool(pool.from_url(self._url, timeout=self._timeout, **options))

    def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send all, then read all replies; an error reply is given, not raised."""
        made: Any = self._client.pipeline(transaction=False)
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

    def _client_here(self) -> Any:
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._by_loop.get(loop)
            if client is None:
                client = self._by_loop[loop] = self._made(self._redis.asyncio, "async")
            return client

    def close(self) -> None:
        """Close the blocking client's connections."""
        self._client.close()

    async def aclose(self) -> None:
        """Close those of the running loop, too."""
        self.close()
        with self._lock:
            client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
