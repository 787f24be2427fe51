"""Several workers of one database that share a Redis, each as a process of its own would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deerflow_saver import CachedHistorySaver
from deerflow_saver.cache.redis import RedisHistoryCache

__all__ = ["cold", "round_trips", "same", "worker"]


def worker(saver: Any, url: str, *, cache: Any = None, **options: Any) -> CachedHistorySaver:
    """A worker that knows nothing yet; options of the cache, `guard` and `key_prefix` apart."""
    wrapping = {name: options.pop(name) for name in ("guard", "key_prefix") if name in options}
    made = cache or RedisHistoryCache.from_url(url, **{"timeout": 2.0, **options})
    return CachedHistorySaver(saver, made, **wrapping)


def cold(line: Any, saver: Any, url: str, **options: Any) -> CachedHistorySaver:
    """A worker that has just read the head of `line`, as every run does first."""
    made = worker(saver, url, **options)
    names = {"thread_id": line.thread_id, "checkpoint_ns": line.checkpoint_ns}
    made.get_tuple({"configurable": names})
    return made


def same(line: Any, reader: Any, ids: Sequence[str | None] = (None,)) -> bool:
    """Whether the histories are the raw saver's."""
    raw = reader.inner
    return all(line.history(reader, cid) == line.history(raw, cid) for cid in ids)


@contextmanager
def round_trips(reader: CachedHistorySaver) -> Iterator[list[Any]]:
    """The pipelines that `reader` sends meanwhile."""
    clients: Any = reader._self_core.shared.cache.store._clients  # type: ignore[attr-defined]
    sent: list[Any] = []
    send: Callable[[Any], Any] = clients.pipeline

    def counting(commands: Any) -> Any:
        sent.append(commands)
        return send(commands)

    clients.pipeline = counting
    try:
        yield sent
    finally:
        del clients.pipeline
