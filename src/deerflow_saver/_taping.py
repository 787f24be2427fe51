"""What a saver serialises while it stores: the very bytes, so that nothing is packed again.

A call with a `Tape` is made on a shadow of the saver: an object of its class that has all of
the saver's attributes, as they are and as they become, but whose serialiser writes down what
it gives.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

__all__ = ["Tape", "run", "tape_for", "taped_as"]

_shadows: dict[type, Any] = {}
_HOOK = getattr(BaseCheckpointSaver.__init_subclass__, "__func__", None)


def tape_for(saver: Any) -> Tape | None:
    """A tape for one call of `saver`; None if its class can have no shadows."""
    kind = type(saver)
    if kind not in _shadows:
        _shadows[kind] = _shadow_class(kind)
    shadow_class = _shadows[kind]
    return None if shadow_class is None else Tape(shadow_class)


class Tape:
    """The values a saver serialised in one call, each with its bytes before any encryption."""

    __slots__ = ("_shadow_class", "_taped")

    def __init__(self, shadow_class: Any) -> None:
        """Nothing was serialised yet."""
        self._shadow_class = shadow_class
        self._taped: list[tuple[Any, tuple[str, bytes] | None]] = []

    def through(self, saver: Any) -> Any:
        """The saver for one call that is taped; what was taped before is gone."""
        taped: list[Any] = []
        self._taped = taped
        shadow = object.__new__(self._shadow_class)
        shadow.__dict__ = saver.__dict__
        shadow.taped_serde = _taped(saver.serde, taped)
        return shadow

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


def _shadow_class(kind: Any) -> Any:
    """A class of shadows, whose end is not the saver's; None where making one may do more."""
    if getattr(kind.__init_subclass__, "__func__", None) is not _HOOK:
        return None
    parts = {
        "__slots__": ("taped_serde",),
        "serde": property(attrgetter("taped_serde")),
        "__del__": lambda _self: None,
    }
    return type(kind)(kind.__name__, (kind,), parts)


def run(saver: Any, call: tuple[Any, ...]) -> Any:
    """Make a call of `saver`: `(method, args, kwargs)`, and perhaps a `Tape`."""
    name, args, kwargs, *tape = call
    if tape:
        saver = tape[0].through(saver)
    return getattr(saver, name)(*args, **kwargs)


def taped_as(call: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """The `other` call, on the tape of the first."""
    return (*other[:3], *call[3:])
