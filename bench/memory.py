"""What one thread of a thousand writes costs in memory, by `tracemalloc`."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.ab import ARMS
from bench.scenarios import CHANNEL, grow
from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["held_by_arms"]


def held_by_arms(saver: BaseCheckpointSaver[Any], depth: int) -> dict[str, int]:
    """Bytes held: by a reader of the raw saver (the decoded writes), and by each cache.

    Each cache is new, walks once, and answers two more reads whose results are dropped.
    """
    thread = grow(saver, f"memory/{depth}", "root", depth, 0)
    found = saver.get_tuple(thread.config)
    config = found.config if found is not None else thread.config

    def read(arm: BaseCheckpointSaver[Any]) -> Any:
        return arm.get_delta_channel_history(config=config, channels=[CHANNEL])

    def kept(name: str) -> Any:
        arm = ARMS[name](saver)
        answers = [read(arm) for _ in range(3)]
        return answers[0] if name == "raw" else arm

    return {name: _held(partial(kept, name)) for name in ARMS}


def _held(make: Callable[[], Any]) -> int:
    """Bytes that what `make` gives keeps alive; a first, untraced call fills all other caches."""
    make()
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        del kept
        return size
    finally:
        tracemalloc.stop()
