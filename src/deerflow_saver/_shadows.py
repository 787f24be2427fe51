"""Objects that stand in for a saver during one call, and whose end is not the saver's.

A *twin* has a copy of the saver's attributes, some of them others: it writes on another
connection, or without the saver's lock. A *shadow* has the very attributes of the saver, as
they are and as they become, and a serialiser of its own.
"""

from __future__ import annotations

import copy
from operator import attrgetter
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["Shadows", "shadow_of", "shadows_of", "twin_of"]

_UNCOPIED = ("__reduce_ex__", "__reduce__", "__getstate__", "__new__")
_COPYING = ("__copy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_HOOK = getattr(BaseCheckpointSaver.__init_subclass__, "__func__", None)

Shadows = Any
"""A class of shadows."""

_twin_classes: dict[type, Any] = {}
_shadow_classes: dict[type, Any] = {}


def twin_of(saver: Any, **attributes: Any) -> Any:
    """A shallow copy of `saver` with other attributes: `copy.copy`, in a fraction of its time."""
    kind = type(saver)
    if kind not in _twin_classes:
        _twin_classes[kind] = _twin_class(kind)
    twin_class = _twin_classes[kind]
    if twin_class is None:
        made = copy.copy(saver)
    else:
        made = object.__new__(twin_class)
        made.__dict__.update(saver.__dict__)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def shadows_of(kind: type) -> Shadows | None:
    """The class of the shadows of a saver's class; None where making one may do more than that."""
    if kind not in _shadow_classes:
        parts = {"__slots__": ("own_serde",), "serde": property(attrgetter("own_serde"))}
        _shadow_classes[kind] = _subclass(kind, parts)
    return _shadow_classes[kind]


def shadow_of(saver: Any, shadows: Shadows, serde: Any) -> Any:
    """A shadow that serialises with `serde`."""
    shadow = object.__new__(shadows)
    shadow.__dict__ = saver.__dict__
    shadow.own_serde = serde
    return shadow


def _twin_class(kind: Any) -> Any:
    """The class of twins; None where a copy is more than an object with the same `__dict__`."""
    plain = (
        all(getattr(kind, name) is getattr(object, name) for name in _UNCOPIED)
        and not any(hasattr(kind, name) for name in _COPYING)
        and not any(vars(base).get("__slots__") for base in kind.__mro__)
    )
    if not plain:
        return None
    return _subclass(kind, {"__slots__": ()}) if hasattr(kind, "__del__") else kind


def _subclass(kind: Any, parts: dict[str, Any]) -> Any:
    """A class whose objects end without a word; None for one that hears of its subclasses."""
    if getattr(kind.__init_subclass__, "__func__", None) is not _HOOK:
        return None
    return type(kind)(kind.__name__, (kind,), {**parts, "__del__": lambda _self: None})
