"""From settings to a wrapped saver."""

from __future__ import annotations

from typing import Any

from deerflow_saver.cache.base import HistoryCache
from deerflow_saver.cache.memory import MemoryHistoryCache
from deerflow_saver.channel_mode.settings import CheckpointSettings
from deerflow_saver.events import OnEvent
from deerflow_saver.history.isolation import Isolation
from deerflow_saver.saver import CachedHistorySaver

__all__ = ["cache_of", "wrap"]


def cache_of(settings: CheckpointSettings) -> MemoryHistoryCache:
    """The cache that `settings` describe: make one for all savers of a process.

    Raises:
        ImportError: the Redis cache needs redis-py, which is not installed.
        InvalidConfigError: the Redis address is none.

    """
    if settings.cache_type == "memory":
        return MemoryHistoryCache(settings.cache_max_bytes)
    from deerflow_saver.cache.redis import RedisHistoryCache

    return RedisHistoryCache.from_url(
        settings.cache_redis_url or "",
        ttl=settings.cache_ttl_seconds,
        max_bytes=settings.cache_max_bytes,
        secret=settings.cache_secret,
    )


def wrap(
    inner: Any,
    settings: CheckpointSettings | None = None,
    *,
    cache: HistoryCache | None = None,
    isolation: Isolation = "safe",
    on_event: OnEvent | None = None,
) -> CachedHistorySaver:
    """`inner` wrapped as `settings` say (by default those of the environment).

    Args:
        inner: as for `CachedHistorySaver`.
        settings: cache, key prefix, guard and fixes.
        cache: use this one (`cache_of(settings)`, shared by several savers).
        isolation: as for `CachedHistorySaver`.
        on_event: as for `CachedHistorySaver`.

    Raises:
        UnsupportedSaverError: as for `CachedHistorySaver`.
        InvalidConfigError: as for `CachedHistorySaver` and `CheckpointSettings`.
        ImportError: as for `cache_of`.

    """
    settings = settings or CheckpointSettings.from_environ()
    return CachedHistorySaver(
        inner,
        cache or cache_of(settings),
        key_prefix=settings.cache_key_prefix or None,
        isolation=isolation,
        on_event=on_event,
        guard=settings.guard,
        fixes=settings.fixes,
    )
