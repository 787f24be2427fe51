"""The small reducers of `ThreadState`: pure, none changes what it is given."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

__all__ = [
    "MAX_DELEGATIONS",
    "MAX_SKILLS",
    "merge_artifacts",
    "merge_delegations",
    "merge_goal",
    "merge_promoted",
    "merge_sandbox",
    "merge_skill_context",
    "merge_todos",
    "merge_viewed_images",
]

MAX_DELEGATIONS = 50
MAX_SKILLS = 8
_MAX_DESCRIPTION = 500
_TERMINAL = frozenset({"completed", "failed", "cancelled", "timed_out", "polling_timed_out"})

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
Entry = Mapping[str, Any]


def merge_sandbox(existing: Any, new: Any) -> Any:
    """Keep the one sandbox of a thread.

    Raises:
        ValueError: `new` names another sandbox.

    """
    if existing is None or new is None:
        return existing if new is None else new
    held, offered = existing.get("sandbox_id"), new.get("sandbox_id")
    if held != offered:
        raise ValueError(f"Conflicting sandbox state updates: {held!r} != {offered!r}")
    return existing


def merge_artifacts(existing: list[str] | None, new: list[str] | None) -> list[str]:
    """All artifacts in order of first appearance, each once."""
    if existing is None:
        return new or []
    return existing if new is None else _each_once([*existing, *new])


def merge_viewed_images(
    existing: dict[str, Any] | None, new: dict[str, Any] | None
) -> dict[str, Any]:
    """Add images, the new ones winning; an empty update clears."""
    if existing is None:
        return new or {}
    if new is None:
        return existing
    return {**existing, **new} if new else {}


def merge_todos(existing: list[T] | None, new: list[T] | None) -> list[T] | None:
    """Replace the list; None keeps it, an empty list clears it."""
    return existing if new is None else new


def merge_goal(existing: T | None, new: T | None) -> T | None:
    """Replace the goal; None keeps it."""
    return existing if new is None else new


def merge_promoted(existing: Any, new: Any) -> Any:
    """Add names promoted from one catalog; those of another catalog replace them."""
    if not new:
        return existing
    catalog, names = new.get("catalog_hash"), new.get("names") or []
    held = (existing or {}).get("catalog_hash")
    if held is not None and held == catalog:
        names = [*(existing.get("names") or []), *names]
    return {"catalog_hash": catalog, "names": _each_once(names)}


def merge_delegations(existing: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """The newest delegations by id, each in the place where it first appeared.

    A delegation that has ended is never taken back to one under way. What replaces an
    entry keeps its `created_at`, and its `run_id` unless it brings one.
    """
    if not new:
        return existing or []
    merged: dict[Any, Entry] = {}
    for entry in (*(existing or ()), *new):
        key = entry.get("id")
        merged[key] = _later(merged[key], entry) if key in merged else entry
    return list(merged.values())[-MAX_DELEGATIONS:]


def merge_skill_context(existing: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """The skills read last, by path; reading one again moves it to the end."""
    merged: dict[Any, dict[str, Any]] = {}
    for entry in map(_skill, (*(existing or ()), *(new or ()))):
        merged.pop(entry["path"], None)
        merged[entry["path"]] = entry
    return list(merged.values())[-MAX_SKILLS:]


def _later(held: Entry, entry: Entry) -> Entry:
    if held.get("status") in _TERMINAL and entry.get("status") not in _TERMINAL:
        return held
    kept = {"created_at": held.get("created_at") or entry.get("created_at")}
    kept["run_id"] = entry.get("run_id") or held.get("run_id")
    return {**entry, **{name: value for name, value in kept.items() if value is not None}}


def _skill(entry: Entry) -> dict[str, Any]:
    loaded_at = entry.get("loaded_at")
    return {
        "name": entry.get("name", ""),
        "path": entry.get("path", ""),
        "description": " ".join(str(entry.get("description") or "").split())[:_MAX_DESCRIPTION],
        "loaded_at": loaded_at if type(loaded_at) is int else 0,
    }


def _each_once(items: Iterable[H]) -> list[H]:
    return list(dict.fromkeys(items))
