"""`LangGraphHistoryCache`: the second tier in any of LangGraph's own caches.

A `BaseCache` can get, set and clear, and nothing at once. So a thread's epoch is part of the
namespace of its records: what arrives after a purge lands where nobody looks. Nor can it
follow a line of checkpoints: the newest ids are kept beside the epoch as a hint of what to
get, and the records tell whether the hint was right. A read costs two calls, and a time to
live counts from the day an epoch began, because renewing it could undo a purge.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langgraph.cache.base import BaseCache

from deerflow_saver._plan import Plan
from deerflow_saver.cache.keys import digest, link_field, record_field, seed_field
from deerflow_saver.cache.memory import DEFAULT_MAX_BYTES
from deerflow_saver.cache.shared import (
    Discard,
    Found,
    Look,
    Request,
    SharedHistoryCache,
    SharedStore,
    Store,
)
from deerflow_saver.errors import InvalidConfigError

__all__ = ["LangGraphHistoryCache"]

_ROOT = "deerflow-saver:1"
_HINTS = 1024
_HEAD = 3
Key = tuple[tuple[str, ...], str]


class _Keys:
    """Where things of one thread lie."""

    def __init__(self, prefix: str, thread_id: str) -> None:
        self.thread = (_ROOT, prefix, digest(prefix, thread_id))
        self.generation: Key = ((_ROOT, prefix), "generation")
        self.epoch: Key = (self.thread, "epoch")

    def line(self, ns: str) -> Key:
        """The hint: checkpoint ids of a namespace, newest first."""
        return self.thread, f"line {ns}"

    def field(self, epoch: str, name: str) -> Key:
        """A record, link or seed."""
        return (*self.thread, epoch), name


class LangGraphStore(SharedStore):
    """Records in a `BaseCache`; see `SharedStore`."""

    def __init__(self, cache: BaseCache[Any], *, ttl: int, rest: float, secret: bytes) -> None:
        """`ttl` in seconds, 0 for none."""
        super().__init__(type(cache).__name__, rest, secret)
        self._cache = cache
        self._ttl = ttl or None

    @property
    def calls(self) -> Mapping[str, Callable[[Any], Any]]:
        """The cache's three methods."""
        return {"get": self._cache.get, "set": self._cache.set, "clear": self._cache.clear}

    @property
    def acalls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """The same, awaited."""
        return {"get": self._cache.aget, "set": self._cache.aset, "clear": self._cache.aclear}

    def close(self) -> None:
        """Nothing: the cache is the caller's."""

    async def aclose(self) -> None:
        """Nothing, as `close`."""

    def plan(self, request: Request) -> Plan[Any]:
        """The calls of a request."""
        if isinstance(request, Look):
            return self._look(request)
        if isinstance(request, Store):
            return self._store(request)
        if isinstance(request, Discard):
            return self._purge(_Keys(request.prefix, request.thread_id))
        if request.thread_id is None:
            return self._clear([(_ROOT, request.prefix)])
        return self._purge(_Keys(request.prefix, request.thread_id))

    def _clear(self, namespaces: Sequence[tuple[str, ...]]) -> Plan[None]:
        yield "clear", namespaces

    def _purge(self, keys: _Keys) -> Plan[None]:
        found = yield "get", [keys.epoch]
        yield "clear", [keys.thread]
        epoch = found.get(keys.epoch)
        if isinstance(epoch, str):
            yield "clear", [(*keys.thread, epoch)]

    def _set(self, values: Mapping[Key, Any]) -> Plan[None]:
        yield "set", {key: (value, self._ttl) for key, value in values.items()}

    def _begun(self, keys: _Keys, found: Mapping[Key, Any]) -> Plan[str]:
        """The epoch that `found` shows, or a new one."""
        generation, epoch = found.get(keys.generation), found.get(keys.epoch)
        if not isinstance(generation, str):
            generation, epoch = uuid4().hex, None
            yield from self._set({keys.generation: generation})
        if isinstance(epoch, str) and epoch.partition(".")[0] == generation:
            return epoch
        yield from self._purge(keys)
        epoch = f"{generation}.{uuid4().hex}"
        yield from self._set({keys.epoch: epoch})
        return epoch

    def _look(self, look: Look) -> Plan[Found]:
        keys = _Keys(look.prefix, look.thread_id)
        place = keys.line(look.ns)
        found = yield "get", [keys.generation, keys.epoch, *([place] if look.channels else ())]
        epoch = yield from self._begun(keys, found)
        if not look.channels:
            return Found(epoch)
        cids = list(dict.fromkeys([look.start, *_line(found.get(place))]))
        wanted = [link_field(look.ns, look.start)]
        for channel in look.channels:
            wanted.append(seed_field(look.ns, channel))
            wanted += [record_field(look.ns, cid, channel) for cid in cids]
        got = yield "get", [keys.field(epoch, name) for name in wanted]
        values = {name: value for (_, name), value in got.items() if isinstance(value, bytes)}
        walked = [_walked(look, channel, values) for channel in look.channels]
        return Found(epoch, [path for path, _ in walked], [seed for _, seed in walked])

    def _store(self, store: Store) -> Plan[bool]:
        keys = _Keys(store.prefix, store.thread_id)
        fields = {keys.field(store.epoch, name): value for name, value in store.fields}
        heads = {n[1:].partition("\0") for n, _ in store.fields if n.startswith("l")}
        lines = {keys.line(ns): cid for ns, _, cid in heads}
        found = yield "get", [keys.generation, keys.epoch, *lines, *fields]
        epoch, generation = found.get(keys.epoch), found.get(keys.generation)
        if epoch != store.epoch or store.epoch.partition(".")[0] != generation:
            return False
        if any(_changes(key[1], found.get(key), value) for key, value in fields.items()):
            yield from self._purge(keys)
            return False
        hints = {key: [cid, *_line(found.get(key))][:_HINTS] for key, cid in lines.items()}
        yield from self._set({**fields, **hints})
        return True


def _changes(name: str, old: Any, new: bytes) -> bool:
    """Whether what cannot change would: see `scripts.STORE`."""
    return old is not None and not name.startswith("s") and (name.startswith("l") or old != new)


def _line(value: Any) -> list[str]:
    return [cid for cid in value if isinstance(cid, str)] if isinstance(value, list) else []


def _walked(
    look: Look, channel: str, values: Mapping[str, bytes]
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """A channel's path through the values that were got, as `scripts.LOOK` follows it."""
    cid, path = look.start, dict[str, bytes]()
    while cid not in path:
        value = values.get(record_field(look.ns, cid, channel))
        if value is None and cid == look.start:
            value = values.get(link_field(look.ns, cid))
        if value is None or len(value) < _HEAD:
            break
        path[cid] = value
        if cid != look.start and value[1:2] in {b"K", b"H"}:
            break
        cid = value[_HEAD : _HEAD + value[2]].decode("utf-8", "replace")
        if not cid or cid in look.anchors:
            break
    return [(cid.encode(), value) for cid, value in path.items()], values.get(
        seed_field(look.ns, channel)
    )


class LangGraphHistoryCache(SharedHistoryCache):
    """Histories in memory, with records in one of LangGraph's caches behind it.

    ```python
    cache = LangGraphHistoryCache(SqliteCache(path="cache.db"))
    ```

    Args:
        cache: any `BaseCache`; it stays the caller's to close.
        ttl: seconds until what was stored is dropped; 0: never.
        rest: seconds for which a cache that failed is left alone.
        max_bytes: budget of the memory in front, in bytes; 0 disables the cache.
        secret: as in `RedisHistoryCache.from_url`.

    Raises:
        InvalidConfigError: `cache` is no `BaseCache`.

    """

    def __init__(
        self,
        cache: BaseCache[Any],
        *,
        ttl: int = 0,
        rest: float = 5.0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        secret: str | bytes = "",
    ) -> None:
        given: Any = cache
        if not isinstance(given, BaseCache):
            msg = f"cache must be a langgraph BaseCache, got {type(cache).__name__}"
            raise InvalidConfigError(msg)
        key = secret if isinstance(secret, bytes) else secret.encode()
        super().__init__(LangGraphStore(cache, ttl=ttl, rest=rest, secret=key), max_bytes)
