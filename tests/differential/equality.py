"""Equality that sees what `==` does not: types, message fields, the difference of 1 and True."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["assert_same", "canonical"]


def canonical(value: Any) -> Any:
    """A plain tree that two values share only if a caller cannot tell them apart."""
    return (type(value).__qualname__, _inside(value))


def _inside(value: Any) -> Any:
    fields = _fields(value)
    if fields is not None:
        return {repr(key): canonical(item) for key, item in fields.items()}
    if isinstance(value, list | tuple | deque):
        return [canonical(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(canonical(item)) for item in value)
    return repr(value)


def _fields(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, BaseModel):
        given = sorted(value.__pydantic_fields_set__)
        return {**value.__dict__, **(value.__pydantic_extra__ or {}), "fields set": given}
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return None


def assert_same(wrapped: Any, raw: Any, *, what: str) -> None:
    """Fail unless both are the same to the last type."""
    left, right = canonical(wrapped), canonical(raw)
    if left != right:
        message = f"{what}:\n  wrapped: {wrapped!r}\n  raw:     {raw!r}"
        raise AssertionError(message)
