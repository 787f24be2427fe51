"""Errors and warnings raised by deerflow-saver. Every error has one base: `DeerflowSaverError`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = [
    "MODE_MISMATCH",
    "CheckpointModeMismatchError",
    "CheckpointModeReconfigurationError",
    "DeerflowSaverError",
    "DeerflowSaverWarning",
    "InvalidConfigError",
    "LostWritesError",
    "NonHeadWriteError",
    "PrunedHistoryError",
    "RefusedWriteError",
    "StagingError",
    "UnknownStateFieldError",
    "UnsupportedSaverError",
    "WriteSlotTakenError",
]


class DeerflowSaverError(Exception):
    """Base of every error this package raises on purpose."""


class UnsupportedSaverError(DeerflowSaverError, TypeError):
    """The object handed to `CachedHistorySaver` cannot be wrapped without losing data."""


class InvalidConfigError(DeerflowSaverError, KeyError, ValueError):
    """A config or argument of a saver call is missing something or has the wrong type.

    A `KeyError` too, because that is what LangGraph's savers raise for a config
    without `thread_id`.
    """

    def __str__(self) -> str:
        """The plain message: `KeyError` alone would print it in quotes."""
        return str(self.args[0]) if self.args else ""


class LostWritesError(DeerflowSaverError, RuntimeError):
    """A checkpoint was refused: its run could not store delta writes that it is made of.

    Its cause is the error of the failed `put_writes`, which the run raises as well.

    Attributes:
        thread_id: the thread.
        checkpoint_ns: the namespace; empty for the root graph.
        checkpoint_id: the checkpoint whose own writes are missing, or which was refused itself.
        channels: the delta channels that would have lost writes.

    """

    def __init__(
        self, *, thread_id: str, checkpoint_ns: str, checkpoint_id: str, channels: tuple[str, ...]
    ) -> None:
        """See the attributes."""
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.channels = channels
        super().__init__(
            f"put refused in thread {thread_id!r}, namespace {checkpoint_ns!r}: this run could "
            f"not store its writes to {', '.join(channels)} on checkpoint {checkpoint_id}, and a "
            "child would read without them. Nothing was stored. Look at the error of put_writes, "
            "then run again from the head, for example invoke(None, config)."
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the attributes."""
        return (_lost, (self.thread_id, self.checkpoint_ns, self.checkpoint_id, self.channels))


def _lost(
    thread_id: str, checkpoint_ns: str, checkpoint_id: str, channels: tuple[str, ...]
) -> LostWritesError:
    return LostWritesError(
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
        channels=channels,
    )


class PrunedHistoryError(DeerflowSaverError, NotImplementedError):
    """`prune` was refused: it would delete the writes that delta channels are rebuilt from.

    A `NotImplementedError` too, as LangGraph raises for the threads it recognises.

    Attributes:
        channels: per thread id the channels that would be lost.

    """

    def __init__(self, channels: Mapping[str, tuple[str, ...]]) -> None:
        """See the attributes."""
        self.channels = dict(channels)
        threads = "; ".join(f"{t!r} ({', '.join(names)})" for t, names in self.channels.items())
        super().__init__(
            "keep_latest can't prune threads whose latest checkpoint does not store every channel: "
            f"{threads}. They would read empty. Nothing was deleted. What works: run the graph "
            "with a lower snapshot_frequency or in full mode until the latest checkpoint stores "
            'the values, or strategy="delete" for threads that are done.'
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the attributes."""
        return (PrunedHistoryError, (self.channels,))


MODE_MISMATCH = (
    "Thread requires delta mode; materialize and convert its checkpoints before using full mode."
)


class CheckpointModeMismatchError(DeerflowSaverError, RuntimeError):
    """A process in full mode met a thread whose channels are stored as deltas.

    The text is the same everywhere; where it happened is in the attributes and in a note.

    Attributes:
        thread_id: the thread, where it is known.
        checkpoint_ns: the namespace; empty for the root graph.
        checkpoint_id: the checkpoint that shows it.

    """

    def __init__(
        self,
        message: str = MODE_MISMATCH,
        *,
        thread_id: str | None = None,
        checkpoint_ns: str = "",
        checkpoint_id: str | None = None,
    ) -> None:
        """See the attributes."""
        super().__init__(message)
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        if thread_id is not None:
            namespace = f", namespace {checkpoint_ns!r}" if checkpoint_ns else ""
            self.add_note(
                f"Refused: thread {thread_id!r}{namespace}, checkpoint {checkpoint_id}. Use a "
                "process in delta mode for it."
            )


class CheckpointModeReconfigurationError(DeerflowSaverError, RuntimeError):
    """The process runs in another mode, or with another cadence: only a restart changes that."""


class UnknownStateFieldError(DeerflowSaverError, ValueError):
    """A write names fields that the graph has no channels for, which LangGraph would discard.

    Attributes:
        fields: the unknown names, sorted.

    """

    def __init__(self, fields: Iterable[object]) -> None:
        """Name the fields."""
        self.fields = tuple(sorted(map(str, fields)))
        super().__init__(f"Unknown thread-state field(s): {', '.join(self.fields)}")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the fields."""
        return (type(self), (self.fields,))


class RefusedWriteError(DeerflowSaverError, ValueError):
    """A write was refused before anything of it was stored.

    Attributes:
        thread_id: the thread.
        checkpoint_ns: the namespace; empty for the root graph.
        checkpoint_id: the checkpoint the write addressed; None for a put without parent.
        head_id: the newest stored checkpoint; for a write behind a refused one, what it was
            at the first refusal.
        operation: `"put"` or `"put_writes"`.
        channels: the delta channels at stake, as far as their names are known.
        reason: one of the reasons of `deerflow_saver.guard.rule`; for a write behind a
            refused one, the reason of the first refusal.
        behind: whether the write only built on one that was refused.

    """

    _ADVICE = ""

    def __init__(
        self,
        *,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str | None,
        head_id: str | None,
        operation: str,
        channels: tuple[str, ...],
        reason: str,
        behind: bool = False,
    ) -> None:
        """See the attributes."""
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.head_id = head_id
        self.operation = operation
        self.channels = channels
        self.reason = reason
        self.behind = behind
        super().__init__(self._text())

    def _text(self) -> str:
        where = f"thread {self.thread_id!r}"
        if self.checkpoint_ns:
            where += f", namespace {self.checkpoint_ns!r}"
        names = ", ".join(self.channels) or "not named"
        what = "it builds on a refused write: " if self.behind else ""
        return (
            f"{self.operation} refused ({self.reason}) in {where}: {what}{_WHY[self.reason]}. "
            f"Addressed checkpoint: {self.checkpoint_id}; head: {self.head_id}; "
            f"delta channels: {names}. Nothing was stored. {self._ADVICE}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the attributes."""
        return (_rebuild, (type(self), dict(self.__dict__)))


def _rebuild(cls: type[RefusedWriteError], attributes: dict[str, object]) -> RefusedWriteError:
    return cls(**attributes)  # type: ignore[arg-type]


_WHY = {
    "fork": "the thread has moved past the addressed checkpoint",
    "orphan": "the addressed checkpoint is not stored",
    "second root": "the namespace has checkpoints already, and this one names no parent",
    "backwards": "its id is older than the head's, so it would never become the head "
    "(a clock runs behind)",
    "other parent": "the head is stored under another parent",
    "foreign writes": "another run wrote on the head after this one had read it",
    "unapplied writes": "it copies the head without the delta writes stored there, which readers "
    "of the copy would replay all the same",
    "late write": "another run put the addressed checkpoint's child",
    "slot taken": "the task has stored another value in its place, which the saver would keep",
}


class NonHeadWriteError(RefusedWriteError):
    """The write would fork a thread whose delta channels are rebuilt from its ancestors."""

    _ADVICE = (
        "What works: read the head and update or run from there; go back to an older checkpoint, "
        "or answer its question, with deerflow_saver.state.prepare_run (a linearised resume); run "
        "the graph in full mode, where forks are well defined; or, as an administrator, "
        "allow_non_head_writes(reason=...)."
    )


class WriteSlotTakenError(RefusedWriteError):
    """The write would be lost: savers keep the first value of a (task id, index).

    LangGraph's `update_state` files an update under the id of a pending task of the node
    it names. If that task has finished, its values hold the places.
    """

    _ADVICE = (
        "What works: update as a node that has not finished in this step, finish the step "
        "first (resume it), or name another task_id in the StateUpdate."
    )


class StagingError(DeerflowSaverError, RuntimeError):
    """A LangGraph release, or a change staged for it, could not be tried; the message says why."""


class DeerflowSaverWarning(UserWarning):
    """Base category of this package's warnings."""
