"""Why the checkpoint before a message cannot be told."""

from __future__ import annotations

from deerflow_saver.errors import DeerflowSaverError
from deerflow_saver.state.ancestry import Identity

__all__ = [
    "CheckpointLineageError",
    "CheckpointLineageIntegrityError",
    "CheckpointParentMissingError",
]


class CheckpointLineageError(DeerflowSaverError, RuntimeError):
    """The checkpoint before a message cannot be told.

    Attributes:
        identity: the checkpoint at which the search ended, where it has one.

    """

    def __init__(self, message: str, identity: Identity | None = None) -> None:
        """See the attributes."""
        super().__init__(message)
        self.identity = identity
        if identity is not None:
            namespace = f", namespace {identity.checkpoint_ns!r}" if identity.checkpoint_ns else ""
            self.add_note(
                f"Thread {identity.thread_id!r}{namespace}, checkpoint {identity.checkpoint_id}."
            )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by message and attributes."""
        return (type(self), (str(self), self.identity))


class CheckpointParentMissingError(CheckpointLineageError):
    """A checkpoint names no parent although the thread is older: the link was never stored.

    What works: `find_base_before_message`, which then looks through the history by time.
    """


class CheckpointLineageIntegrityError(CheckpointLineageError):
    """The stored lineage contradicts itself, or is longer than the search may be.

    What works: nothing that guesses. Choose the checkpoint by its id, or repair the thread.
    """
