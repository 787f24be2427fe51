"""A place where runs meet, so that they overlap without anybody sleeping."""

from __future__ import annotations

import threading

__all__ = ["Meeting"]

_PATIENCE = 60.0


class Meeting:
    """Whoever attends waits until everybody has attended or ended.

    Nodes attend; `Env.together` reports the end of each of its runs, so that a run which
    was refused before it got to its node keeps nobody waiting.
    """

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._changed = threading.Condition()

    def attend(self) -> None:
        """Wait for the others.

        Raises:
            TimeoutError: they never came.

        """
        with self._changed:
            self._parties -= 1
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._parties <= 0, _PATIENCE):
                message = "the other runs never came to the meeting"
                raise TimeoutError(message)

    def ended(self) -> None:
        """Report that a run is over."""
        with self._changed:
            self._parties -= 1
            self._changed.notify_all()
