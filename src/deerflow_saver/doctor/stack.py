"""The stack of savers, outermost first, and whether the cache in it is asked."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver

from deerflow_saver._probe import Traits, traits_of
from deerflow_saver.doctor.defects import Kind
from deerflow_saver.saver import CachedHistorySaver

__all__ = ["Consulted", "Layer", "cache_in", "consulted", "described", "kind_of", "layers"]

Role = Literal["cache", "storage", "foreign", "wrapper"]
_HISTORY = ("get_delta_channel_history", "aget_delta_channel_history")
_KINDS: dict[str, Kind] = {
    f"langgraph.checkpoint.{kind}": kind for kind in ("memory", "sqlite", "postgres")
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One saver of the stack.

    Attributes:
        name: its class.
        role: the cache; LangGraph's own saver at the bottom; another saver at the bottom; or
            something in between.
        history: `"cached"`, a method of its `"own"`, or the base class's `"walk"` over rows.
        task_path: whether the order of parallel writes gets past its `put_writes`: it names
            `task_path`, it passes any argument on to the next (`"passed"`), or it is `"lost"`.
            LangGraph leaves the path out of a call to a saver that does not name it.

    """

    name: str
    role: Role
    history: Literal["cached", "own", "walk"]
    task_path: Literal["named", "passed", "lost"]


@dataclass(frozen=True, slots=True)
class Consulted:
    """Whether a graph's reads reach the cache, and why."""

    answer: Literal["yes", "no", "unknown"]
    reason: str


def layers(saver: Any) -> list[Any]:
    """The savers, each holding the next; found in attributes, nothing is called."""
    found = [saver]
    while True:
        inner = _held(found[-1])
        if inner is None or any(inner is known for known in found):
            return found
        found.append(inner)


def described(stack: list[Any]) -> list[Layer]:
    """What each saver of a stack is."""
    return [
        Layer(_name(saver), _role(saver, last=saver is stack[-1]), _history(saver), path)
        for saver, path in zip(stack, _paths(stack), strict=True)
    ]


def kind_of(stack: list[Any]) -> Kind:
    """Which of LangGraph's savers is at the bottom."""
    if traits_of(stack[-1]).kind != "storage":
        return "other"
    home = type(stack[-1]).put.__module__
    return next(kind for package, kind in _KINDS.items() if home.startswith(package))


def cache_in(stack: list[Any]) -> CachedHistorySaver | None:
    """The wrapper of this package, if there is one."""
    return next((saver for saver in stack if _is_cache(saver)), None)


def consulted(stack: list[Any]) -> Consulted:
    """Whether the cache will be asked, from where the history methods are defined."""
    cache = cache_in(stack)
    if cache is None:
        return Consulted("no", "there is no CachedHistorySaver in the stack")
    if not cache._self_core.shared.cache.enabled:  # noqa: SLF001 - this package's own
        return Consulted("no", "its budget is 0 bytes")
    above = stack[: next(n for n, saver in enumerate(stack) if saver is cache)]
    walking = [_name(saver) for saver in above if not _has_own_history(saver)]
    if walking:
        reason = f"{walking[0]} above it walks row by row: let it forward {_HISTORY[0]}"
        return Consulted("no", reason)
    if above:
        names = ", ".join(map(_name, above))
        return Consulted("unknown", f"it is asked if {names} forwards {_HISTORY[0]}")
    return Consulted("yes", _gain(traits_of(cache.inner)))


def _gain(traits: Traits) -> str:
    return {
        "storage": "it stands directly round LangGraph's own saver",
        "tuples": "the saver below is not LangGraph's own: one get_tuple for each read",
        "opaque": "the saver below has a history method of its own: kept for each checkpoint only",
    }[traits.kind]


def _role(saver: Any, *, last: bool) -> Role:
    if _is_cache(saver):
        return "cache"
    if not last:
        return "wrapper"
    return "storage" if traits_of(saver).kind == "storage" else "foreign"


def _history(saver: Any) -> Literal["cached", "own", "walk"]:
    if _is_cache(saver):
        return "cached"
    return "own" if _has_own_history(saver) else "walk"


def _paths(stack: list[Any]) -> Iterator[Literal["named", "passed", "lost"]]:
    """How the task path fares at each saver; the cache names it whatever it wraps."""
    below_cache = False
    for saver in stack:
        if _is_cache(saver):
            below_cache = True
            yield "named"
            continue
        parameters = inspect.signature(saver.put_writes).parameters
        takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters.values())
        named = "task_path" in parameters
        yield "named" if named else "passed" if below_cache and takes_any else "lost"


def _is_cache(saver: Any) -> bool:
    return issubclass(type(saver), CachedHistorySaver)


def _has_own_history(saver: Any) -> bool:
    own = (getattr(type(saver), name) for name in _HISTORY)
    base = (getattr(BaseCheckpointSaver, name) for name in _HISTORY)
    return any(mine is not theirs for mine, theirs in zip(own, base, strict=True))


def _held(saver: Any) -> Any | None:
    if _is_cache(saver):
        return saver.inner
    return next(
        (held for held in _attributes(saver) if isinstance(held, BaseCheckpointSaver)), None
    )


def _attributes(saver: Any) -> Iterator[Any]:
    yield _attribute(saver, "__wrapped__")
    yield from getattr(saver, "__dict__", {}).values()
    for cls in type(saver).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield _attribute(saver, name)


def _attribute(saver: Any, name: str) -> Any:
    """An attribute that may not be there, whatever a `__getattr__` raises then."""
    with contextlib.suppress(Exception):
        return getattr(saver, name, None)
    return None


def _name(saver: Any) -> str:
    return "CachedHistorySaver" if _is_cache(saver) else type(saver).__qualname__
