"""What processes may tell one another about a thread, in words that know no store.

Shared are only facts that cannot change any more: a checkpoint's parent, and, once its
first child is stored behind a guard, its own writes and how it stores a channel. An
*epoch* names a time in which nothing of a thread was forgotten: it changes with every
purge, by whichever process, and what was learnt in another epoch is void.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deerflow_saver.history.facts import Packed, Row

__all__ = ["Asked", "Forget", "News", "Publish", "Sealed", "Told"]


class Sealed(NamedTuple):
    """One checkpoint and channel, final."""

    checkpoint_id: str
    channel: str
    parent: str | None
    stored: tuple[str, Any] | str
    """As in `Node.stored`."""
    own: Sequence[Row]
    """Own writes in the order the saver replays them."""


class News(NamedTuple):
    """What became shareable when a checkpoint was put."""

    checkpoint_id: str
    parent: str | None
    sealed: Sequence[Sealed]
    """The parent's records, where its own writes are known in full."""
    seeds: Sequence[tuple[str, Any, Packed]]
    """(channel, key, value) of the snapshots the new checkpoint stores."""


class Asked(NamedTuple):
    """Request: the epoch of a thread, and records from a checkpoint down to what is known."""

    place: Any
    checkpoint_id: str = ""
    channels: tuple[str, ...] = ()
    """Empty if only the epoch is asked for."""
    anchors: tuple[str, ...] = ()
    """Checkpoints whose children's histories are known: nothing below is needed."""


class Told(NamedTuple):
    """Answer to `Asked`; None stands for an outage."""

    epoch: str | None
    """None if the store cannot keep one now: then nothing may be served from memory."""
    rows: Mapping[str, Mapping[str, Any]]
    """Per channel and checkpoint what was shared, as `chain.Fetched`."""


class Publish(NamedTuple):
    """Request: share what became known, if the epoch is still this one. Answered by whether."""

    place: Any
    epoch: str
    news: News


class Forget(NamedTuple):
    """Request: end the epoch of a thread, or with None of every thread of the database."""

    thread_id: str | None
