"""Checkpoints and writes put by hand, for what a graph only makes in years or after accidents."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base import id as ids

from deerflow_saver.staging.scenarios.stage import Config, Stage

__all__ = ["clock", "line", "written"]


def line(
    stage: Stage, channels: Iterable[str], length: int, checkpoint_ids: Iterable[str] | None = None
) -> list[Config]:
    """`length` checkpoints one after the other, each but the last with its number as own write."""
    config, configs = stage.thread(), []
    named = iter(checkpoint_ids) if checkpoint_ids else None
    for number in range(length):
        checkpoint = empty_checkpoint()
        if named:
            checkpoint["id"] = next(named)
        config = stage.put(config, checkpoint, {"source": "loop", "step": number}, {})
        configs.append(config)
        if number < length - 1:
            writes = [(channel, [number]) for channel in channels]
            stage.put_writes(config, writes, f"task-{number}")
    return configs


def written(history: Any, channel: str) -> list[Any]:
    """The values of a history's writes, oldest first."""
    return [value[0] for _, _, value in history[channel]["writes"]]


@contextmanager
def clock(seconds: float) -> Iterator[None]:
    """Another host, whose clock is `seconds` ahead: ids made inside are made there."""
    real = time.time_ns

    class Clock:
        @staticmethod
        def time_ns() -> int:
            return real() + int(seconds * 10**9)

    with patch.object(ids, "time", Clock), patch.object(ids, "_last_v6_timestamp", None):
        yield
