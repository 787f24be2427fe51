"""What can go wrong with a thread lock."""

from __future__ import annotations

from deerflow_saver.errors import DeerflowSaverError

__all__ = [
    "ThreadLockError",
    "ThreadLockLostError",
    "ThreadLockReentryError",
    "ThreadLockTimeoutError",
]


class ThreadLockError(DeerflowSaverError, RuntimeError):
    """A thread lock could not be had or kept.

    Attributes:
        thread_id: the thread.
        owner: who holds the lock, as far as it is known.

    """

    def __init__(self, message: str, *, thread_id: str, owner: str | None = None) -> None:
        """See the attributes."""
        super().__init__(message)
        self.thread_id = thread_id
        self.owner = owner

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the attributes."""
        return (_rebuild, (type(self), str(self), self.thread_id, self.owner))


def _rebuild(
    cls: type[ThreadLockError], message: str, thread_id: str, owner: str | None
) -> ThreadLockError:
    return cls(message, thread_id=thread_id, owner=owner)


class ThreadLockTimeoutError(ThreadLockError, TimeoutError):
    """Somebody else held the lock for as long as the caller was ready to wait."""


class ThreadLockReentryError(ThreadLockError):
    """Whoever holds the lock asked for it again, and would have waited for itself."""


class ThreadLockLostError(ThreadLockError):
    """The lock is not held any more: its block is over, or its database session is."""
