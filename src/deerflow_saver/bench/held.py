"""What a thread that was read costs in memory, by `tracemalloc`."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from deerflow_saver.bench.stage import Stage

__all__ = ["held_bytes"]


def held_bytes(stage: Stage, head: Any) -> int:
    """Bytes held by a new saver of the side that answered three reads of `head`.

    The raw side keeps nothing; of it the decoded history itself is measured, which is what
    a reader holds. A first, untraced round fills whatever else keeps things.
    """

    def kept() -> Any:
        saver = stage.another()
        answers = [stage.history(saver, head) for _ in range(3)]
        return answers[0] if stage.cell.side == "raw" else saver

    kept()
    return _held(kept)


def _held(make: Callable[[], Any]) -> int:
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
