"""Tell how far a run is, and how long it will take if the rest is like what was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from deerflow_saver.cli.progress import Progress

__all__ = ["telling"]


@contextmanager
def telling(
    label: str,
    total: int,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[str], None]]:
    """Gives a function to call with the name of what begins."""
    progress = Progress(label, max(1, total), stream, clock)
    began, done = clock(), 0

    def tell(name: str) -> None:
        nonlocal done
        left = ""
        if done:
            seconds = int((clock() - began) / done * (total - done))
            left = f", {seconds // 60}:{seconds % 60:02} left"
        progress.step(done, f"{left}, {name}")
        done += 1

    try:
        yield tell
    finally:
        progress.close()
