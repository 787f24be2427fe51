"""Why a thread cannot be rolled back."""

from __future__ import annotations

from deerflow_saver.errors import DeerflowSaverError

__all__ = ["RollbackError"]


class RollbackError(DeerflowSaverError, RuntimeError):
    """A rollback was refused, and the thread is as it was.

    Attributes:
        thread_id: the thread.
        checkpoint_id: the checkpoint it was to go back to; None if it was to be empty again.

    """

    def __init__(self, message: str, *, thread_id: str, checkpoint_id: str | None) -> None:
        """See the attributes."""
        super().__init__(message)
        self.thread_id = thread_id
        self.checkpoint_id = checkpoint_id

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the attributes."""
        return (_rebuild, (type(self), str(self), self.thread_id, self.checkpoint_id))


def _rebuild(
    cls: type[RollbackError], message: str, thread_id: str, checkpoint_id: str | None
) -> RollbackError:
    return cls(message, thread_id=thread_id, checkpoint_id=checkpoint_id)
