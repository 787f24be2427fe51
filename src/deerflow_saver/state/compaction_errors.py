"""Why a thread was not compacted."""

from __future__ import annotations

from collections.abc import Iterable

from deerflow_saver.errors import DeerflowSaverError

__all__ = [
    "ContextCompactionBusy",
    "ContextCompactionDisabled",
    "ContextCompactionFailed",
    "ThreadCheckpointNotFoundError",
]


class ContextCompactionDisabled(DeerflowSaverError, RuntimeError):  # noqa: N818 - a state of the application
    """There is nothing to summarise with."""

    def __init__(self, message: str = "Context compaction is disabled.") -> None:
        super().__init__(message)


class ContextCompactionFailed(DeerflowSaverError, RuntimeError):  # noqa: N818 - named as its siblings
    """There was no summary that could be stored; the cause says why. Nothing was stored."""

    def __init__(self, message: str = "summary generation failed") -> None:
        super().__init__(message)


class ContextCompactionBusy(DeerflowSaverError, RuntimeError):  # noqa: N818 - as above
    """The head has tasks left to run, which a new state would make meaningless. Nothing was stored.

    Attributes:
        thread_id: the thread.
        checkpoint_id: its head.
        tasks: the names of the tasks of the step that is not over.
        asks: whether one of them waits for the answer to an interrupt.

    """

    def __init__(
        self, *, thread_id: str, checkpoint_id: str, tasks: Iterable[str], asks: bool
    ) -> None:
        """See the attributes."""
        self.thread_id = thread_id
        self.checkpoint_id = checkpoint_id
        self.tasks = tuple(tasks)
        self.asks = asks
        super().__init__(
            "Thread waits for the answer to an interrupt. Compact after it is answered."
            if asks
            else "Thread has a run in flight. Compact after the run finishes."
        )
        self.add_note(
            f"Refused: thread {thread_id!r}, checkpoint {checkpoint_id}, tasks of the step that "
            f"is not over: {', '.join(self.tasks)}. If that run was given up, run it to its end "
            "(invoke(None, config)), or give the thread its next input."
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the attributes."""
        return (_busy, (self.thread_id, self.checkpoint_id, self.tasks, self.asks))


def _busy(
    thread_id: str,
    checkpoint_id: str,
    tasks: tuple[str, ...],
    asks: bool,  # noqa: FBT001
) -> ContextCompactionBusy:
    return ContextCompactionBusy(
        thread_id=thread_id, checkpoint_id=checkpoint_id, tasks=tasks, asks=asks
    )


class ThreadCheckpointNotFoundError(DeerflowSaverError, LookupError):
    """The thread has no checkpoint.

    Attributes:
        thread_id: the thread.

    """

    def __init__(self, thread_id: str) -> None:
        """Name the thread."""
        self.thread_id = thread_id
        super().__init__(f"Thread {thread_id} checkpoint not found")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the thread."""
        return (type(self), (self.thread_id,))
