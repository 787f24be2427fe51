"""`RedisHistoryCache`: histories shared by all workers of a database, through Redis or Valkey.

Redis 6 or newer, without modules. One hash per thread holds its records (see `keys` and
`records`), so bytes grow with what was written, a purge removes one key, and an eviction
takes a thread as a whole. The first field is the thread's epoch, a random name that begins
with the database's generation: a record is stored only into the epoch in which its
checkpoint was put, and removing the key, or the generation, ends it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

import ormsgpack

from deerflow_saver._plan import Plan
from deerflow_saver.cache import scripts
from deerflow_saver.cache.keys import generation_key, thread_key
from deerflow_saver.cache.memory import DEFAULT_MAX_BYTES
from deerflow_saver.cache.redis_clients import Clients
from deerflow_saver.cache.shared import (
    LIMIT,
    Discard,
    Found,
    Look,
    Request,
    SharedHistoryCache,
    SharedStore,
    Store,
)
from deerflow_saver.errors import InvalidConfigError

__all__ = ["RedisHistoryCache", "RedisStore"]

_FULL, _FOREIGN = "OutOfMemoryError", "WRONGTYPE"
_RIGHTS = "give its user the rights that docs/caching.md names"
_REFUSALS = (
    ("NoPermissionError", _RIGHTS),
    ("ACL failure in script", _RIGHTS),
    ("AuthenticationError", "give its address the right user and password"),
    ("MovedError", "it is one node of a cluster, so add cluster=true to its address"),
)
"""A class of redis-py's or a part of a message, of a server that works; and what to do."""
_DAY, _LONGEST = 86_400, (1 << 31) - 1
"""Bounds in seconds: of waiting, and of a time to live."""
_RENEWED = 60.0
"""Seconds for which a generation's expiry is not put off again, at most."""
Command = tuple[Any, ...]


class RedisStore(SharedStore):
    """Records in Redis; see `SharedStore`."""

    def __init__(
        self, clients: Clients, name: str, *, ttl: int, rest: float, secret: bytes = b""
    ) -> None:
        """`ttl` in seconds, 0 for none."""
        super().__init__(name, rest, secret)
        self._clients = clients
        self._ttl = ttl
        self._generations: dict[str, str] = {}
        self._renewals: dict[str, float] = {}
        """When (`time.monotonic`) the expiry of a database's generation is to be put off again."""

    @property
    def calls(self) -> Mapping[str, Callable[[Any], Any]]:
        """One operation: a pipeline of commands, answered by replies or errors."""
        return {"pipeline": self._clients.pipeline}

    @property
    def acalls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """The same on the async face."""
        return {"pipeline": self._clients.apipeline}

    def close(self) -> None:
        """Close the connections of the blocking face."""
        self._clients.close()

    async def aclose(self) -> None:
        """Close the connections of both faces."""
        await self._clients.aclose()

    def refusal(self, error: Exception) -> str | None:
        """What is to be changed, where a user has not the rights, or the address is another's."""
        names = {kind.__name__ for kind in type(error).__mro__}
        told = str(error)
        return next((what for sign, what in _REFUSALS if sign in names or sign in told), None)

    def plan(self, request: Request) -> Plan[Any]:
        """The commands of a request."""
        if isinstance(request, Look):
            return self._look(request)
        if isinstance(request, Store):
            return self._store(request)
        if isinstance(request, Discard):
            key = thread_key(request.prefix, request.thread_id)
            return _checked([("HDEL", key, *request.fields)])
        if request.thread_id is None:
            return self._purge_all(request.prefix)
        return _checked([("UNLINK", thread_key(request.prefix, request.thread_id))])

    def _look(self, look: Look) -> Plan[Found]:
        """One pipeline, and a second one only if the database's generation is new to us."""
        key, place = thread_key(look.prefix, look.thread_id), generation_key(look.prefix)
        for _ in range(3):
            known = self._generations.get(look.prefix, "")
            commands: list[Command] = [("GET", place)]
            if self._ttl and time.monotonic() >= self._renewals.get(look.prefix, 0.0):
                # Not at every read, which would take an eighth of its time in the client
                commands.append(("EXPIRE", place, self._ttl))
                self._renewals[look.prefix] = time.monotonic() + min(_RENEWED, self._ttl / 20)
            commands.append(
                (
                    "EVAL", scripts.LOOK, 1, key, self._ttl, known, uuid4().hex, LIMIT,
                    look.ns, look.start, len(look.channels), *look.channels, *look.anchors,
                )
            )  # fmt: skip
            replies = yield "pipeline", commands
            generation, answer = _text(_checked_reply(replies[0])), replies[-1]
            if generation is None:
                generation = yield from self._new_generation(place)
            if generation is None:
                return Found(None)
            self._generations[look.prefix] = generation
            if isinstance(answer, Exception) and str(answer).startswith(_FOREIGN):
                yield from _checked([("UNLINK", key)])
                continue
            epoch = _text(_checked_reply(answer)[0])
            if epoch is None and known == generation:
                return Found(None)  # Redis is full
            if epoch is not None and epoch.partition(".")[0] == generation:
                return _found(epoch, answer[1:])
            if epoch is not None:
                yield from _checked([("UNLINK", key)])
        return Found(None)

    def _new_generation(self, place: str) -> Plan[str | None]:
        expiry = ("EX", self._ttl) if self._ttl else ()
        replies = yield "pipeline", [("SET", place, uuid4().hex, "NX", *expiry), ("GET", place)]
        if _is_full(replies[0]):
            return None
        _checked_reply(replies[0])
        return _text(_checked_reply(replies[1]))

    def _store(self, store: Store) -> Plan[bool]:
        key = thread_key(store.prefix, store.thread_id)
        pairs = [part for pair in store.fields for part in pair]
        command = (
            "EVAL", scripts.STORE, 1, key,
            store.epoch, self._ttl, len(store.gone), *store.gone, *pairs,
        )  # fmt: skip
        (reply,) = yield "pipeline", [command]
        if _is_full(reply):
            return True  # the epoch goes on: there is a hole in what is shared, no more
        if isinstance(reply, Exception) and str(reply).startswith(_FOREIGN):
            yield from _checked([("UNLINK", key)])
            return False
        return bool(_checked_reply(reply))

    def _purge_all(self, prefix: str) -> Plan[None]:
        self._generations.pop(prefix, None)
        yield from _checked([("UNLINK", generation_key(prefix))])


def _found(epoch: str, answer: Sequence[Any]) -> Found:
    flat = [ormsgpack.unpackb(path) for path in answer[::2]]
    paths = [list(zip(path[::2], path[1::2], strict=True)) for path in flat]
    return Found(epoch, paths, list(answer[1::2]))


def _checked(commands: list[Command]) -> Plan[None]:
    """Commands whose replies only tell whether they failed."""
    for reply in (yield "pipeline", commands):
        _checked_reply(reply)


def _checked_reply(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _is_full(reply: Any) -> bool:
    return isinstance(reply, Exception) and (
        type(reply).__name__ == _FULL or "OOM" in str(reply)[:80]
    )


def _text(reply: Any) -> str | None:
    return reply.decode("ascii", "replace") if isinstance(reply, bytes) else None


class RedisHistoryCache(SharedHistoryCache):
    """Histories in memory, with records shared through Redis or Valkey behind it.

    ```python
    cache = RedisHistoryCache.from_url("redis://localhost:6379/0")
    saver = CachedHistorySaver(PostgresSaver(conn), cache)
    ```

    One cache serves any number of savers, threads and event loops.
    """

    store: RedisStore

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        ttl: int = 86_400,
        timeout: float = 0.25,
        rest: float = 5.0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_connections: int | None = None,
        secret: str | bytes = "",
        cluster: bool = False,
    ) -> Self:
        """A cache on the server that `url` names; nothing is connected yet.

        Args:
            url: `redis://`, `rediss://` or `unix://`, as redis-py reads it.
            ttl: seconds after its last use until a thread is dropped from Redis; 0: never.
            timeout: seconds to wait for a connection, and for a reply.
            rest: seconds for which a server that failed is left alone.
            max_bytes: budget of the memory in front, in bytes; 0 disables the cache.
            max_connections: connections per face and event loop, for which readers wait up to
                `timeout`; None: as many as needed.
            secret: any text that all workers have and nobody else who can write to Redis: records
                carry a digest keyed with it. By default it comes from the password of a Postgres
                database, by scrypt; without either, a digest only shows accidents.
            cluster: the server is a node of a Redis Cluster, and the others are found through it.

        Raises:
            InvalidConfigError: a value out of bounds, or an address that is none.
            ImportError: redis-py is not installed.

        """
        if isinstance(ttl, bool) or not isinstance(ttl, int) or not 0 <= ttl <= _LONGEST:
            msg = f"ttl must be an int from 0 to {_LONGEST} (seconds; 0: no expiry), got {ttl!r}"
            raise InvalidConfigError(msg)
        for name, value in (("timeout", timeout), ("rest", rest)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value <= _DAY:
                msg = f"{name} must be a number of seconds > 0 and <= {_DAY}, got {value!r}"
                raise InvalidConfigError(msg)
        key = secret if isinstance(secret, bytes) else secret.encode()
        clients = Clients(url, timeout, max_connections, cluster=cluster)
        return cls(RedisStore(clients, _shown(url), ttl=ttl, rest=rest, secret=key), max_bytes)


def _shown(url: str) -> str:
    """Where the server is, without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
