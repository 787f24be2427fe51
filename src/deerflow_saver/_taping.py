"""What a saver serialises while it stores: the very bytes, so that nothing is packed again.

A call with a `Tape` is made on a shadow of the saver, whose serialiser notes what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deerflow_saver._shadows import Shadows, is_of, shadow_of

__all__ = ["Tape", "noted_answer", "run", "taped_as"]

_BYTES = frozenset({bytes, bytearray, memoryview})
Taped = list[tuple[Any, tuple[str, bytes] | None]]


class Tape:
    """The values a saver serialised in one call, each with its bytes before any encryption."""

    __slots__ = ("_kind", "_shadows", "_taped")

    def __init__(self, kind: type, shadows: Shadows) -> None:
        """Nothing was serialised yet; `kind` is the saver's class, `shadows` its shadows'."""
        self._kind, self._shadows = kind, shadows
        self._taped: Taped = []

    def through(self, saver: Any) -> Any:
        """The saver for one call that is taped; what was taped before is gone.

        It may be a twin or a copy of the one that the tape is for, as long as it is of its class.
        """
        taped: Taped = []  # a new one: a call that was cancelled may go on serialising
        self._taped = taped
        if not is_of(saver, self._kind):
            return saver
        return shadow_of(saver, self._shadows, _Taping(saver, taped))

    def values(self, writes: Sequence[tuple[Any, Any]]) -> list[tuple[str, bytes]] | None:
        """The serialised values of `writes`, if each was serialised once, in their order."""
        taped = self._taped
        if len(taped) != len(writes):
            return None
        values = []
        for (value, packed), (_, written) in zip(taped, writes, strict=True):
            if value is not written or packed is None:
                return None
            values.append(packed)
        return values


class _Taping:
    """The serialiser that a saver has at the moment; what it gives is written down."""

    __slots__ = ("_saver", "_taped")

    def __init__(self, saver: Any, taped: Taped) -> None:
        """`saver` is asked for its `serde` each time: somebody may replace it meanwhile."""
        self._saver, self._taped = saver, taped

    def dumps_typed(self, value: Any) -> Any:
        serde = self._saver.serde
        if type(serde) is JsonPlusSerializer or not isinstance(serde, EncryptedSerializer):
            packed = serde.dumps_typed(value)
            self._taped.append((value, noted_answer(packed)))
            return packed
        if not _encrypts_plainly(serde):
            return serde.dumps_typed(value)  # it may count, or keep keys: it has to do that itself
        # What lies below the encryption is taped (see `_serde.plain_serde`)
        return EncryptedSerializer(serde.cipher, _Taping(serde, self._taped)).dumps_typed(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saver.serde, name)


def noted_answer(answer: Any) -> tuple[str, bytes] | None:
    """What `dumps_typed` gave, as it is now; None if savers need not give just that back.

    A number, say, a database keeps as one. And a bytearray may be the very object that was
    serialised, and yet be changed.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:  # noqa: PLR2004 - kind and data
        return None
    kind, data = answer
    return (kind, bytes(data)) if type(kind) is str and type(data) in _BYTES else None


def _encrypts_plainly(serde: EncryptedSerializer) -> bool:
    """Whether it does with a value what `EncryptedSerializer` does, and nothing else."""
    dumps = getattr(type(serde), "dumps_typed", None)
    own = getattr(serde, "__dict__", {})
    return dumps is EncryptedSerializer.dumps_typed and "dumps_typed" not in own


def run(saver: Any, call: tuple[Any, ...]) -> Any:
    """Make a call of `saver`: `(method, args, kwargs)`, and perhaps a `Tape`."""
    name, args, kwargs, *tape = call
    if tape:
        saver = tape[0].through(saver)
    return getattr(saver, name)(*args, **kwargs)


def taped_as(call: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """The `other` call, on the tape of the first."""
    return (*other[:3], *call[3:])
