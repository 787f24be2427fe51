"""Objects that stand in for a saver during one call, and whose end is not the saver's.

A *twin* has a copy of the saver's attributes, some of them others: it writes on another
connection, or without the saver's lock. A *shadow* has the very attributes of the saver, as
they are and as they become, and a serialiser of its own.

Only LangGraph's own code ever runs on a shadow, for that is known not to ask who it is. So a
shadow is of LangGraph's class, and of a saver whose class changes what a write comes across
there is none.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABCMeta
from collections.abc import Iterator, Mapping
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["Shadows", "is_of", "shadow_of", "shadows_of", "stores_as_given", "twin_of"]

_UNCOPIED = ("__reduce_ex__", "__reduce__", "__getstate__", "__new__")
_COPYING = ("__copy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_HOOK = getattr(BaseCheckpointSaver.__init_subclass__, "__func__", None)

Shadows = Any
"""A class of shadows."""

_twin_classes: dict[type, Any] = {}

_PACKAGE = "langgraph.checkpoint."
_OURS = (_PACKAGE, "deerflow_saver.", "contextlib")
_WRITING = ("put_writes", "aput_writes")
_DECIDING = (*_WRITING, "_dump_writes")
"""Methods of which one that is not LangGraph's may store other values than it is given."""
_ALWAYS_MET = frozenset(
    {"__class__", "__delattr__", "__getattr__", "__getattribute__", "__setattr__"}
)
"""Names that any code comes across which asks for an attribute."""


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


def shadow_of(saver: Any, shadows: Shadows, serde: Any) -> Any:
    """A shadow that serialises with `serde`."""
    shadow = object.__new__(shadows)
    shadow.__dict__ = saver.__dict__
    shadow.own_serde = serde
    return shadow


def is_of(saver: Any, kind: type) -> bool:
    """Whether a saver is of just that class, or the twin of one."""
    return type(saver) is kind or type(saver) is _twin_classes.get(kind)


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
    """A class whose objects end without a word; None for one that may hear of its subclasses."""
    if type(kind) not in {type, ABCMeta}:
        return None
    if getattr(kind.__init_subclass__, "__func__", None) is not _HOOK:
        return None
    return type(kind)(kind.__name__, (kind,), {**parts, "__del__": lambda _self: None})


Code = Mapping[tuple[type, str], Any]
"""What a write may come across, per class and name."""


class _Known(NamedTuple):
    """What is known of one of LangGraph's classes."""

    names: frozenset[str]
    """That a write may come across."""
    code: Code
    shadows: Shadows | None
    """The class of its savers' shadows; None while somebody's patches are in that code."""


_known: dict[type, _Known] = {}


def shadows_of(kind: type) -> Shadows | None:
    """The class of the shadows of a saver's class; None where its writes run others' code."""
    lineage = kind.__mro__
    own = next(filter(_is_langgraphs, lineage), None)
    if own is None:
        return None
    known = _known_of(own)
    classes = set(map(id, own.__mro__))  # a metaclass may have ideas of its own on equality
    added = [vars(cls) for cls in lineage if id(cls) not in classes]
    return known.shadows if all(map(known.names.isdisjoint, added)) else None


def _known_of(own: type) -> _Known:
    known = _known.get(own)
    if known is None or not _same(known.code, _code_met(own, known.names)):
        names = _ALWAYS_MET.union(_names_met(own)) - {"serde"}
        code = _code_met(own, names)
        unpatched = all(map(_is_own, code.values()))
        known = _known[own] = _Known(names, code, _shadow_class(own) if unpatched else None)
    return known


def _code_met(own: type, names: frozenset[str]) -> Code:
    classes = filter(_is_langgraphs, own.__mro__)
    return {(cls, name): vars(cls)[name] for cls in classes for name in names & vars(cls).keys()}


def _same(one: Code, other: Code) -> bool:
    return one.keys() == other.keys() and all(one[key] is other[key] for key in one)


def stores_as_given(kind: type) -> bool:
    """Whether LangGraph's own code decides what a write stores, whatever else the class changes."""
    for name in _DECIDING:
        home = next((cls for cls in kind.__mro__ if name in vars(cls)), None)
        if home is not None and not (_is_langgraphs(home) and _is_own(vars(home)[name])):
            return False
    return True


def _is_langgraphs(cls: type) -> bool:
    return str(cls.__module__).startswith(_PACKAGE)


def _is_own(found: Any) -> bool:
    """Whether it is LangGraph's code, perhaps in a wrapper of this package, and nobody's patch."""
    found = getattr(found, "__func__", getattr(found, "fget", found))
    while type(found) is FunctionType and found.__globals__.get("__name__", "").startswith(_OURS):
        if "__wrapped__" not in vars(found):
            return True
        found = vars(found)["__wrapped__"]
    return not hasattr(found, "__get__")


def _shadow_class(own: type) -> Shadows:
    parts = {"__slots__": ("own_serde",), "serde": property(attrgetter("own_serde"))}
    return _subclass(own, parts)


def _names_met(own: type) -> set[str]:
    """Names in the code of `put_writes`, and in that of all methods which these may name."""
    met, ahead = set[str](), list(_WRITING)
    while ahead:
        name = ahead.pop()
        if name not in met:
            met.add(name)
            found = inspect.getattr_static(own, name, None)
            function = inspect.unwrap(getattr(found, "__func__", getattr(found, "fget", found)))
            ahead += _names_in(getattr(function, "__code__", None))
    return met


def _names_in(code: Any) -> Iterator[str]:
    if isinstance(code, CodeType):
        yield from code.co_names
        for constant in code.co_consts:
            yield from _names_in(constant)
