"""Names in a shared store.

Everything about a thread lies in one hash, whose key carries a hash tag, so that scripts
work on it in a cluster and purging is the removal of one key. Thread ids enter as digests:
whatever characters they have, no id can be taken for a pattern or for another key.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = [
    "EPOCH", "digest", "generation_key", "link_field", "record_field", "seed_field", "thread_key",
]  # fmt: skip

_FORMAT = "deerflow-saver:1"
EPOCH = "e"
"""The field that holds the thread's epoch."""


def digest(*parts: str) -> str:
    """32 hex digits that no other parts have."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.hexdigest()


def generation_key(prefix: str) -> str:
    """The key of a database's generation, which every epoch begins with."""
    return f"{_FORMAT}:{prefix}:generation"


def thread_key(prefix: str, thread_id: str) -> str:
    """The key of a thread's hash."""
    return f"{_FORMAT}:{prefix}:{{{digest(prefix, thread_id)}}}"


def link_field(ns: str, checkpoint_id: str) -> str:
    """A head's parent, until the head is final."""
    return f"l{ns}\0{checkpoint_id}"


def record_field(ns: str, checkpoint_id: str, channel: str) -> str:
    """A final checkpoint's parent, own writes and way of storing one channel."""
    return f"r{ns}\0{checkpoint_id}\0{channel}"


def seed_field(ns: str, channel: str) -> str:
    """The newest snapshot of a channel."""
    return f"s{ns}\0{channel}"
