"""A circuit breaker: whoever fails is left alone for a while, so an outage costs one timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Breaker"]


class Breaker:
    """Closed while calls succeed; open for `rest` seconds after one that failed.

    After the rest one caller at a time may try; its failure opens the breaker again, its
    success closes it.
    """

    def __init__(self, rest: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start closed; `rest` in seconds."""
        self._rest = rest
        self._clock = clock
        self._lock = threading.Lock()
        self._open = False
        self._until = 0.0
        self.outages = 0
        """How often the breaker opened after it had been closed."""

    @property
    def open(self) -> bool:
        """Whether the last call that ended has failed."""
        return self._open

    def allows(self) -> bool:
        """Whether to try now; who is allowed after a rest tries for all others."""
        if not self._open:
            return True
        with self._lock:
            now = self._clock()
            if self._open and now < self._until:
                return False
            self._until = now + self._rest  # the others wait for this one
            return True

    def succeeded(self) -> bool:
        """Close; whether an outage ended with this."""
        if not self._open:
            return False
        with self._lock:
            ended, self._open = self._open, False
            return ended

    def failed(self) -> bool:
        """Open; whether an outage began with this."""
        with self._lock:
            began = not self._open
            self._open = True
            self._until = self._clock() + self._rest
            self.outages += began
            return began
