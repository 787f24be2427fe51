"""The savers that are compared: raw, wrapped with each cache, and the published alternative."""

from __future__ import annotations

from typing import Any

from deerflow_saver import CachedHistorySaver, open_cache
from deerflow_saver.bench.alternative import AncestorCache

__all__ = ["REDIS_SIDES", "make", "policy"]

REDIS_SIDES = frozenset({"two-tier"})


def make(side: str, raw: Any, *, guard: str = "off", redis: str = "", prefix: str = "") -> Any:
    """The saver of a side round `raw`, with nothing cached in this process.

    Args:
        side: one of `case.SIDES`.
        raw: the saver that stores.
        guard: the policy of a wrapped side.
        redis: the URL for the sides with Redis.
        prefix: names the database in Redis, where wrappers of several processes meet.

    """
    if side == "raw":
        return raw
    if side == "alternative":
        return AncestorCache(raw)
    kept: Any = policy(side, guard)
    if side == "memory":
        return CachedHistorySaver(raw, guard=kept)
    return CachedHistorySaver(raw, open_cache(redis), key_prefix=prefix, guard=kept)


def policy(side: str, guard: str) -> str:
    """The guard's policy on a side: with Redis always `refuse`.

    Workers share only what no late write can make wrong, and that is what the guard refuses.
    """
    return "refuse" if side in REDIS_SIDES else guard
