"""Sizes of what is stored: writes as the saver serialises them, and keys in Redis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["redis_bytes", "stored_write_bytes"]


def stored_write_bytes(serde: Any, writes: Iterable[tuple[str, str, Any]]) -> int:
    """Bytes of the values of `writes`."""
    return sum(len(serde.dumps_typed(value)[1]) for _, _, value in writes)


def redis_bytes(url: str) -> int:
    """What the keys of one Redis database take, as `MEMORY USAGE` tells.

    Keys are looked for with SCAN, which a benchmark's own database is small enough for.
    """
    import redis

    with redis.Redis.from_url(url) as client:
        keys = list(client.scan_iter(count=1000))
        return sum(client.memory_usage(key, samples=0) or 0 for key in keys)
