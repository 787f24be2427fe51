"""Tell a waiting developer how far a long run is: on standard error, beside the results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["Progress"]

_QUIET_SECONDS = 5.0
_BAR = 30


class Progress:
    """A bar that redraws itself on a terminal; elsewhere a line every few seconds, if it takes any.

    Args:
        label: what is running.
        total: how many steps there are.
        stream: where to write; standard error by default.
        clock: what tells the seconds.

    """

    def __init__(
        self,
        label: str,
        total: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._label = label
        self._total = total
        self._stream = stream or sys.stderr
        self._drawn = 0
        self._began = self._told = clock()

    def step(self, done: int, note: str = "") -> None:
        """`done` steps are done; `note` follows the number."""
        filled = _BAR * done // self._total
        self._show(f"{done}/{self._total}{note}", f"[{'#' * filled:.<{_BAR}}] ")

    def say(self, text: str) -> None:
        """Name what is done now."""
        self._show(text, "")

    def close(self) -> None:
        """Leave a clean line for the results."""
        if self._drawn:
            self._stream.write(f"\r{'':{self._drawn}}\r")
            self._stream.flush()
            self._drawn = 0

    def _show(self, text: str, bar: str) -> None:
        now = self._clock()
        if self._stream.isatty():
            line = f"{self._label:<8} {bar}{text}"
            self._stream.write(f"\r{line:<{self._drawn}}")
            self._stream.flush()
            self._drawn = len(line)
        elif now - self._told >= _QUIET_SECONDS:
            self._told = now
            self._stream.write(f"{self._label}: {text}, {now - self._began:.0f} s\n")
            self._stream.flush()
