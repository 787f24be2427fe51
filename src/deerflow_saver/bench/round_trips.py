"""Count the round trips of this process to Redis: what is sent at once is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ROUND_TRIPS", "counting_round_trips"]

ROUND_TRIPS = "redis round trips"


@contextmanager
def counting_round_trips(counts: Counter[str]) -> Iterator[None]:
    """Count in `counts` while the block lasts; without redis-py nothing is counted."""
    try:
        from redis.asyncio.connection import AbstractConnection as AsyncConnection
        from redis.connection import AbstractConnection as SyncConnection
    except ImportError:
        yield
        return
    # Any: redis-py types the one and not the other
    blocking: Any = SyncConnection
    awaited: Any = AsyncConnection
    sent, asent = blocking.send_packed_command, awaited.send_packed_command

    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts[ROUND_TRIPS] += 1
        return sent(self, *args, **kwargs)

    async def asend(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts[ROUND_TRIPS] += 1
        return await asent(self, *args, **kwargs)

    blocking.send_packed_command = send
    awaited.send_packed_command = asend
    try:
        yield
    finally:
        blocking.send_packed_command = sent
        awaited.send_packed_command = asent
