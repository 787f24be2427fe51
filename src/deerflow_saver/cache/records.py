"""The bytes of what is shared: small, checked before use, and safe to read from a stranger.

A value is a head, a body and a digest. The head names the format, the kind of value and the
parent, so that a script can follow a line without reading bodies; the body is plain
msgpack, whose only payloads are bytes as the wrapped saver's serialiser wrote them; the
digest covers the place as well, so that no value counts anywhere else. With a secret the
digest is keyed: without knowing it nobody can write a value that is taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, NamedTuple

import ormsgpack

from deerflow_saver.history.facts import ABSENT, HELD, Packed, Row

__all__ = ["Codec", "Place", "Record"]

_FORMAT = b"1"
_DIGEST = 16
_HEAD = 3
_MAX_PARENT = 255
LINK, PLAIN, STORED, KNOWN, SEED = b"L", b"A", b"H", b"K", b"S"
"""Kinds: a head's link; records of a checkpoint that stores nothing, an unknown value, or a
value that is known by its key; and a snapshot."""
_HOW = {PLAIN: ABSENT, STORED: HELD}
_VERSIONS = (str, int, float)
_PICKLE = "pickle"
_ROW = 3
"""Members of a row: task id, kind and bytes."""


class Record(NamedTuple):
    """A link or a record, read back."""

    parent: str | None
    stored: Any
    """`ABSENT`, `HELD`, or the version under which the value is known."""
    own: Sequence[tuple[str, Packed]]
    """Task id and payload of each own write, in the order they are replayed."""


class Codec:
    """Makes the places of one database.

    Args:
        prefix: the database's name in the store.
        identity: how payloads are written; values of another identity are not understood.
        secret: what all workers know and the store does not; may be empty.

    """

    def __init__(self, prefix: str, identity: str, secret: bytes = b"") -> None:
        key = blake2b(secret, digest_size=32).digest() if secret else b""
        self._digest = blake2b(digest_size=_DIGEST, key=key)
        self._add(self._digest, prefix, identity)

    @staticmethod
    def _add(digest: Any, *names: str) -> None:
        for name in names:
            data = name.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(4, "big") + data)

    def place(self, *names: str) -> Place:
        """Where values lie: the key, namespace and channel, say."""
        digest = self._digest.copy()
        self._add(digest, *names)
        return Place(digest)


class Place:
    """Writes and reads the values of one place, each under the name it has there."""

    __slots__ = ("_digest",)

    def __init__(self, digest: Any) -> None:
        """`digest` is begun with everything but name and value."""
        self._digest = digest

    def _sum(self, name: bytes, value: bytes) -> bytes:
        digest = self._digest.copy()
        digest.update(b"%d %b" % (len(name), name))
        digest.update(value)
        return digest.digest()  # type: ignore[no-any-return]

    def _value(self, name: str, kind: bytes, parent: str | None, body: Any) -> bytes:
        above = (parent or "").encode()
        if len(above) > _MAX_PARENT:
            msg = f"a parent's id of more than {_MAX_PARENT} bytes is not shared"
            raise ValueError(msg)
        value = b"".join((_FORMAT, kind, bytes([len(above)]), above, ormsgpack.packb(body)))
        return value + self._sum(name.encode(), value)

    def link(self, name: str, parent: str | None) -> bytes:
        """A head's parent."""
        return self._value(name, LINK, parent, None)

    def record(self, name: str, parent: str | None, stored: Any, own: Sequence[Row]) -> bytes:
        """A final checkpoint and channel; `stored` as in `Node.stored`.

        Raises:
            ValueError: the parent's id is longer than 255 bytes.
            TypeError: a part that is not text, a number or bytes.

        """
        kind, version = STORED, None
        if stored is ABSENT:
            kind = PLAIN
        elif type(stored) is tuple and type(stored[1]) in _VERSIONS:
            kind, version = KNOWN, stored[1]
        return self._value(name, kind, parent, [version, *_flat(own)])

    def seed(self, name: str, version: Any, value: Packed) -> bytes:
        """A stored value under its version."""
        return self._value(name, SEED, None, [version, *value])

    def read(self, name: bytes, value: bytes) -> Record | None:
        """A link or a record; None for anything else, whatever it is."""
        try:
            kind, parent, body = self._open(name, value)
            if kind == LINK:
                return Record(parent, HELD, ())
            stored = body[0] if kind == KNOWN else _HOW[kind]
            return Record(parent, stored, _rows(body) if len(body) > 1 else ())
        except Exception:  # noqa: BLE001 - a value that cannot be read is a miss, whatever it is
            return None

    def read_seed(self, name: bytes, value: bytes) -> tuple[Any, Packed] | None:
        """A stored value and its version; None for anything else."""
        try:
            kind, _, (version, *packed) = self._open(name, value)
            return (version, _packed(*packed)) if kind == SEED else None
        except Exception:  # noqa: BLE001 - as above
            return None

    def _open(self, name: bytes, value: bytes) -> tuple[bytes, str | None, Any]:
        body = value[:-_DIGEST]
        if not compare_digest(value[-_DIGEST:], self._sum(name, body)) or body[:1] != _FORMAT:
            raise ValueError
        end = _HEAD + body[2]
        return body[1:2], body[_HEAD:end].decode() or None, ormsgpack.unpackb(body[end:])


def _flat(own: Sequence[Row]) -> list[Any]:
    return [part for row in own for part in (row.task_id, *row.value)]


def _rows(body: list[Any]) -> list[tuple[str, Packed]]:
    """The rows that follow the version in a body."""
    rows = []
    for task, kind, data in zip(body[1::_ROW], body[2::_ROW], body[3::_ROW], strict=True):
        if type(task) is not str:
            raise TypeError
        rows.append((task, _packed(kind, data)))
    return rows


def _packed(kind: Any, data: Any) -> Packed:
    """A payload that is never unpickled, whatever the serialiser would do."""
    if type(data) is not bytes or type(kind) is not str or kind.startswith(_PICKLE):
        raise TypeError
    return Packed(kind, data)
