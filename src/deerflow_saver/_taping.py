"""What a saver serialises while it stores: the very bytes, so that nothing is packed again.

A call with a `Tape` is made on a shadow of the saver, whose serialiser notes what it gives.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deerflow_saver._shadows import Shadows, shadow_of, shadows_of

__all__ = ["Tape", "run", "tape_for", "taped_as"]


def tape_for(saver: Any) -> Tape | None:
    """A tape for one call of `saver`; None if its class can have no shadows."""
    shadows = shadows_of(type(saver))
    return None if shadows is None else Tape(shadows)


class Tape:
    """The values a saver serialised in one call, each with its bytes before any encryption."""

    __slots__ = ("_shadows", "_taped")

    def __init__(self, shadows: Shadows) -> None:
        """Nothing was serialised yet."""
        self._shadows = shadows
        self._taped: list[tuple[Any, tuple[str, bytes] | None]] = []

    def through(self, saver: Any) -> Any:
        """The saver for one call that is taped; what was taped before is gone."""
        taped: list[Any] = []
        self._taped = taped
        return shadow_of(saver, self._shadows, _taped(saver.serde, taped))

    def values(self, writes: Sequence[Any]) -> list[tuple[str, bytes]] | None:
        """The serialised values of `writes`, if each was serialised once, in their order."""
        taped = self._taped
        if len(taped) != len(writes):
            return None
        values = []
        for (value, packed), write in zip(taped, writes, strict=True):
            if value is not write[1] or packed is None:
                return None
            values.append(packed)
        return values


class _Taping:
    """A serialiser that writes down what it gives."""

    __slots__ = ("_serde", "_taped")

    def __init__(self, serde: Any, taped: list[Any]) -> None:
        self._serde, self._taped = serde, taped

    def dumps_typed(self, value: Any) -> Any:
        packed = self._serde.dumps_typed(value)
        self._taped.append((value, _noted(packed)))
        return packed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._serde, name)


def _noted(packed: Any) -> tuple[str, bytes] | None:
    """A serialiser's answer as it is now: a bytearray may yet be changed."""
    try:
        kind, data = packed
        return kind, bytes(data)
    except (TypeError, ValueError):
        return None


def _taped(serde: Any, taped: list[Any]) -> Any:
    """`serde` with what lies below its encryption taped (see `_serde.plain_serde`)."""
    if type(serde) is JsonPlusSerializer or not isinstance(serde, EncryptedSerializer):
        return _Taping(serde, taped)
    twin = copy.copy(serde)
    twin.serde = _taped(serde.serde, taped)
    return twin


def run(saver: Any, call: tuple[Any, ...]) -> Any:
    """Make a call of `saver`: `(method, args, kwargs)`, and perhaps a `Tape`."""
    name, args, kwargs, *tape = call
    if tape:
        saver = tape[0].through(saver)
    return getattr(saver, name)(*args, **kwargs)


def taped_as(call: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """The `other` call, on the tape of the first."""
    return (*other[:3], *call[3:])
