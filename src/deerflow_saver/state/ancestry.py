"""What one stored checkpoint tells about a lineage, without materialising it.

The functions take what a saver returns (`CheckpointTuple`) and what a graph returns
(`StateSnapshot`) alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from deerflow_saver._arguments import configurable

__all__ = [
    "Identity",
    "Target",
    "checkpoint_configurable",
    "checkpoint_messages",
    "checkpoint_metadata",
    "concerns",
    "exists",
    "has_pending_tasks",
    "holds_as_child",
    "identity_of",
    "is_duration_only_checkpoint",
    "is_metadata_only_checkpoint",
    "occurrences",
    "stored_holds",
]

_METADATA_WRITERS = frozenset({"runtime_run_duration", "runtime_interrupt_title"})
_METADATA_CHANNELS = frozenset({"goal"})


class Identity(NamedTuple):
    """What addresses one checkpoint."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    def config(self) -> dict[str, Any]:
        """The config that selects the checkpoint."""
        return {"configurable": self._asdict()}

    def thread(self) -> dict[str, Any]:
        """The config of the thread and namespace."""
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}}


class Target(NamedTuple):
    """The message that is looked for, and the channel it is in."""

    message_id: str
    channel: str


def identity_of(config: Any) -> Identity | None:
    """What a config addresses; None unless it names a thread and a checkpoint."""
    found = configurable(config)
    thread_id, checkpoint_id = found.get("thread_id"), found.get("checkpoint_id")
    if not (isinstance(thread_id, str) and isinstance(checkpoint_id, str)):
        return None
    if not (thread_id and checkpoint_id):
        return None
    return Identity(thread_id, found.get("checkpoint_ns") or "", checkpoint_id)


def checkpoint_configurable(checkpoint: Any) -> dict[str, Any]:
    """A copy of the `configurable` part of a checkpoint's config."""
    return dict(configurable(getattr(checkpoint, "config", None)))


def checkpoint_metadata(checkpoint: Any) -> dict[str, Any]:
    """A copy of a checkpoint's metadata."""
    metadata = getattr(checkpoint, "metadata", None)
    return dict(metadata) if isinstance(metadata, Mapping) else {}


def checkpoint_messages(checkpoint: Any, channel: str = "messages") -> list[Any]:
    """The messages of a materialised or whole checkpoint; empty if it holds no list."""
    for values in (getattr(checkpoint, "values", None), _part(checkpoint, "channel_values")):
        if isinstance(values, Mapping) and isinstance(values.get(channel), list):
            return list(values[channel])
    return []


def occurrences(checkpoint: Any, target: Target) -> int:
    """How often the message is among those of the checkpoint."""
    return _count(checkpoint_messages(checkpoint, target.channel), target.message_id)


def exists(checkpoint: Any) -> bool:
    """Whether it is stored: LangGraph echoes the config it was asked for if nothing is."""
    told = getattr(checkpoint, "checkpoint_exists", None)
    if isinstance(told, bool):
        return told
    return (
        getattr(checkpoint, "metadata", None) is not None
        or getattr(checkpoint, "created_at", None) is not None
        or isinstance(getattr(checkpoint, "checkpoint", None), dict)
    )


def has_pending_tasks(checkpoint: Any) -> bool:
    """Whether tasks are left to run; False where that is not known."""
    return bool(getattr(checkpoint, "next", ()))


def is_duration_only_checkpoint(checkpoint: Any) -> bool:
    """Whether it was stored only to note how long a run took."""
    writes = checkpoint_metadata(checkpoint).get("writes")
    return isinstance(writes, dict) and "runtime_run_duration" in writes


def is_metadata_only_checkpoint(checkpoint: Any) -> bool:
    """Whether it was stored beside the conversation: a run's duration, a title, a goal."""
    metadata = checkpoint_metadata(checkpoint)
    writes = metadata.get("writes")
    if not isinstance(writes, dict) or not writes or metadata.get("source") != "update":
        return is_duration_only_checkpoint(checkpoint)
    return all(
        writer in _METADATA_WRITERS
        or (isinstance(values, dict) and bool(values) and values.keys() <= _METADATA_CHANNELS)
        for writer, values in writes.items()
    )


def stored_holds(row: Any, target: Target) -> bool | None:
    """Whether the stored value holds the message; None if the row stores none."""
    values = _part(row, "channel_values")
    if target.channel in values:
        value = values[target.channel]
        value = value.value if isinstance(value, _DeltaSnapshot) else value
        return _count(value if isinstance(value, list) else [value], target.message_id) > 0
    # Without a version the channel was never written, so there is nothing to replay either.
    return None if target.channel in _part(row, "channel_versions") else False


def holds_as_child(row: Any, child: Any, target: Target) -> bool:
    """Whether a checkpoint that stores no value holds the message if, and only if, its child does.

    A delta channel of a child is its parent's, plus the parent's own writes: if those do not
    concern the message, both hold it or neither. That is so for the reducers of messages,
    which change only what a write names. What the child stores itself need not be what the
    writes make: a fork stores its own.
    """
    return target.channel not in _part(child, "channel_values") and not concerns(row, target)


def concerns(row: Any, target: Target) -> bool:
    """Whether a checkpoint's own writes may add, replace or remove the message."""
    return any(
        channel == target.channel and _may_touch(value, target.message_id)
        for _, channel, value in getattr(row, "pending_writes", None) or ()
    )


def _may_touch(value: Any, message_id: str) -> bool:
    items = value if isinstance(value, list) else [value]
    return any(_id_of(item) in (None, message_id, REMOVE_ALL_MESSAGES) for item in items)


def _count(messages: Iterable[Any], message_id: str) -> int:
    return sum(_id_of(message) == message_id for message in messages)


def _id_of(item: Any) -> str | None:
    """A message's own id; None for what has none, or is no message (an `Overwrite`, a tuple)."""
    found = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
    return found if isinstance(found, str) else None


def _part(row: Any, name: str) -> Mapping[str, Any]:
    checkpoint = getattr(row, "checkpoint", None)
    found = checkpoint.get(name) if isinstance(checkpoint, Mapping) else None
    return found if isinstance(found, Mapping) else {}
