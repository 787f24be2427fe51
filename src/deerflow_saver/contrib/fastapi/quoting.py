"""What a refusal repeats of a request, such that the answer can be sent.

A body may hold what JSON's parser takes and an answer cannot have: half a surrogate pair, a
number that is none, bytes that are no text, lists in lists in lists.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["quoted"]

_DEPTH = 16
"""Levels that are repeated: more than a refusal and its context have."""


def quoted(value: Any, depth: int = _DEPTH) -> Any:
    """`value` in a form that an answer can have; what goes deeper than `depth` is cut."""
    if not isinstance(value, dict | list | tuple):
        return _plain(value)
    if not depth:
        return "..."
    if isinstance(value, dict):
        return {_plain(key): quoted(item, depth - 1) for key, item in value.items()}
    return [quoted(item, depth - 1) for item in value]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_none = isinstance(value, float) and not math.isfinite(value)
    return str(value) if is_none else value
