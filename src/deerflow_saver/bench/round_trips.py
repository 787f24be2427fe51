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
        from redis.asyncio.connection import AbstractConnection as Asynchronous
        from redis.connection import AbstractConnection as Synchronous
    except ImportError:
        yield
        return
    sent, asent = Synchronous.send_packed_command, Asynchronous.send_packed_command

    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts[ROUND_TRIPS] += 1
        return sent(self, *args, **kwargs)

    async def asend(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts[ROUND_TRIPS] += 1
        return await asent(self, *args, **kwargs)

    Synchronous.send_packed_command = send  # type: ignore[method-assign]
    Asynchronous.send_packed_command = asend  # type: ignore[method-assign]
    try:
        yield
    finally:
        Synchronous.send_packed_command = sent  # type: ignore[method-assign]
        Asynchronous.send_packed_command = asent  # type: ignore[method-assign]
