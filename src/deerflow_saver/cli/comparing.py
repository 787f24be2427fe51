"""Say whether two things a saver gave are the same, and if not, where they part.

Types count: a message that came back as a dict, or a tuple as a list, is a difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import StateSnapshot

__all__ = ["alike", "digest", "exact", "first_difference", "settled"]

_DRAWN_BY_CHANCE = ("config", "created_at", "parent_config")
_GUARD_MARK = "deerflow_delta_channels"
"""The one thing the wrapper adds: the guard notes in a checkpoint's metadata what it guards."""


def exact(snapshot: StateSnapshot) -> dict[str, Any]:
    """All of a state, for two reads of the same database."""
    return snapshot._asdict()


def alike(snapshot: StateSnapshot) -> dict[str, Any]:
    """What two databases that went through the same turns have in common.

    Ids of checkpoints and tasks, and times, are drawn anew by every run.
    """
    fields = snapshot._asdict()
    metadata = (snapshot.metadata or {}).items()
    fields["metadata"] = {key: value for key, value in metadata if key != _GUARD_MARK}
    for name in _DRAWN_BY_CHANCE:
        del fields[name]
    fields["tasks"] = [(task.name, task.path, task.error, task.result) for task in snapshot.tasks]
    fields["has_parent"] = snapshot.parent_config is not None
    return fields


def settled(value: Any) -> Any:
    """`value` with the results of parallel calls in one order.

    Savers that replay parallel writes by task id give two databases two orders: those ids are
    drawn anew by every run.
    """
    if isinstance(value, _DeltaSnapshot):
        return _DeltaSnapshot(settled(value.value))
    if isinstance(value, dict):
        return {key: settled(item) for key, item in value.items()}
    if type(value) is not list:
        return value
    runs = groupby(value, key=lambda item: _result_id(item) is not None)
    return [item for results, run in runs for item in (sorted(run, key=_key) if results else run)]


def _result_id(item: Any) -> str | None:
    """The id of a call's result, or of the result in a write."""
    if isinstance(item, tuple) and type(item[-1]) is list and item[-1]:
        return _result_id(item[-1][0])
    return item.id if isinstance(item, ToolMessage) else None


def _key(item: Any) -> str:
    return _result_id(item) or ""


def first_difference(raw: Any, wrapped: Any, path: str = "") -> str | None:
    """Where two values first differ, as a path and both sides; None if nowhere."""
    if type(raw) is not type(wrapped):
        return _difference(path, repr(raw), repr(wrapped))
    if isinstance(raw, dict):
        return _different_dict(raw, wrapped, path)
    if isinstance(raw, list | tuple):
        return _different_list(raw, wrapped, path)
    if raw == wrapped:
        return None
    if isinstance(raw, BaseMessage):
        return first_difference(vars(raw), vars(wrapped), path) or _difference(
            path, repr(raw), repr(wrapped)
        )
    return _difference(path, repr(raw), repr(wrapped))


def _different_dict(raw: dict[Any, Any], wrapped: dict[Any, Any], path: str) -> str | None:
    if raw.keys() != wrapped.keys():
        return _difference(path, f"keys {sorted(raw)}", f"keys {sorted(wrapped)}")
    return _first((raw[key], wrapped[key], f"{path}.{key}") for key in raw)


def _different_list(raw: Sequence[Any], wrapped: Sequence[Any], path: str) -> str | None:
    if len(raw) != len(wrapped):
        return _difference(path, f"{len(raw)} items", f"{len(wrapped)} items")
    pairs = enumerate(zip(raw, wrapped, strict=True))
    return _first((left, right, f"{path}[{number}]") for number, (left, right) in pairs)


def digest(value: Any) -> str:
    """A short name for a value, to compare with another process."""
    text = json.dumps(_plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """`value` as JSON has it, type names included."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, BaseMessage):
        return {"type": type(value).__qualname__, "fields": _plain(vars(value))}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if type(value) is list:
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return {type(value).__qualname__: [_plain(item) for item in value]}
    return repr(value)


def _first(triples: Iterable[tuple[Any, Any, str]]) -> str | None:
    found = (first_difference(raw, wrapped, path) for raw, wrapped, path in triples)
    return next((difference for difference in found if difference is not None), None)


def _difference(path: str, raw: str, wrapped: str) -> str:
    return f"{path.lstrip('.')}: raw {_short(raw)}, wrapped {_short(wrapped)}"


def _short(text: str, width: int = 60) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
