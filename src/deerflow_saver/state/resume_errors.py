"""Why a thread cannot go back to a checkpoint."""

from __future__ import annotations

from deerflow_saver.errors import DeerflowSaverError

__all__ = ["CheckpointResumeError", "resume_error"]


class CheckpointResumeError(DeerflowSaverError, RuntimeError):
    """Going back to a checkpoint was refused, and nothing was stored.

    Attributes:
        thread_id: the thread.
        checkpoint_id: the checkpoint it was to go back to.

    """

    def __init__(self, message: str, *, thread_id: str, checkpoint_id: str) -> None:
        """See the attributes."""
        super().__init__(message)
        self.thread_id = thread_id
        self.checkpoint_id = checkpoint_id

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the attributes."""
        return (_rebuild, (type(self), str(self), self.thread_id, self.checkpoint_id))


def _rebuild(
    cls: type[CheckpointResumeError], message: str, thread_id: str, checkpoint_id: str
) -> CheckpointResumeError:
    return cls(message, thread_id=thread_id, checkpoint_id=checkpoint_id)


def resume_error(
    what: str, why: str, *, run_id: str | None, thread_id: str, checkpoint_id: str
) -> CheckpointResumeError:
    """The error that a run could not `what`; `why`, and what to do, are in a note."""
    who = f"Run {run_id} could not" if run_id else "Could not"
    error = CheckpointResumeError(f"{who} {what}", thread_id=thread_id, checkpoint_id=checkpoint_id)
    error.add_note(f"Refused: thread {thread_id!r}, checkpoint {checkpoint_id}. {why}")
    return error
