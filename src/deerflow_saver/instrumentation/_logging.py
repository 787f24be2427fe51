"""Events as log records."""

from __future__ import annotations

import logging

from deerflow_saver.events import GuardEvent, HistoryEvent

__all__ = ["EventLogger"]


class EventLogger:
    """A hook that logs every event; the record has it as its attribute `event`.

    Args:
        logger: `deerflow_saver.events` by default.
        level: of reads. A walk past LangGraph's bound is logged as a warning.
        guard_level: of writes that the guard refused, observed or was told to allow. Their
            records name the thread.

    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        level: int = logging.DEBUG,
        guard_level: int = logging.WARNING,
    ) -> None:
        self._logger = logger or logging.getLogger("deerflow_saver.events")
        self._level = level
        self._guard_level = guard_level

    def __call__(self, event: HistoryEvent | GuardEvent) -> None:
        """Log one event."""
        if isinstance(event, GuardEvent):
            self._guarded(event)
            return
        level = max(self._level, logging.WARNING) if event.past_bound else self._level
        if self._logger.isEnabledFor(level):
            self._read(level, event)

    def _read(self, level: int, event: HistoryEvent) -> None:
        self._logger.log(
            level,
            "read %s: %s, %d writes after %s, %d calls, %.3f ms%s",
            event.channel,
            event.outcome,
            event.replay_depth,
            event.seed_kind,
            event.calls,
            event.seconds * 1000,
            ", past the bound" if event.past_bound else "",
            extra={"event": event},
        )

    def _guarded(self, event: GuardEvent) -> None:
        self._logger.log(
            self._guard_level,
            "%s %s (%s): thread %r, namespace %r, checkpoint %s, head %s%s",
            event.outcome,
            event.operation,
            event.reason,
            event.thread_id,
            event.checkpoint_ns,
            event.checkpoint_id,
            event.head_id,
            f"; {event.note}" if event.note else "",
            extra={"event": event},
        )
