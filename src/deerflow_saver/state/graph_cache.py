"""Compiled graphs kept for their next reader: building an agent takes far longer than a read."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, NamedTuple

__all__ = ["CompiledGraphCache", "resolve_checkpoint_graph_cache_max"]

_DEFAULT_MAX = 64


def resolve_checkpoint_graph_cache_max(
    settings: Any, name: str = "accessor_graph_max", default: int = _DEFAULT_MAX
) -> int:
    """A cap from a settings object; the default if it has none, or what it has is no cap.

    Args:
        settings: a `CheckpointSettings`, or anything with such an attribute, directly or in
            its `checkpoint_graph_cache`.
        name: the attribute.
        default: the cap where there is none: an int >= 1.

    """
    section = getattr(settings, "checkpoint_graph_cache", settings)
    return _cap(getattr(section, name, default), default)


def _cap(value: Any, default: int = _DEFAULT_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return default
    return value


class _Kept(NamedTuple):
    graph: Any
    witnesses: tuple[Any, ...]


class _Building:
    def __init__(self, witnesses: tuple[Any, ...]) -> None:
        self.witnesses = witnesses
        self.thread = threading.get_ident()
        self.done: Future[Any] = Future()


class CompiledGraphCache:
    """The graphs used last, each built once however many ask for it at the same time.

    Args:
        cap: how many are kept: an int >= 1, or a function that tells, asked at every build,
            so that a changed setting takes effect (a value that is no cap means 64).

    """

    def __init__(self, cap: int | Callable[[], Any] = _DEFAULT_MAX) -> None:
        self._cap = cap
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._under_way: dict[Hashable, _Building] = {}

    def __len__(self) -> int:
        """How many graphs are kept."""
        return len(self._kept)

    def get(
        self, key: Hashable, build: Callable[[], Any], *, witnesses: tuple[Any, ...] = ()
    ) -> Any:
        """The graph of `key`, built if it is not kept.

        Args:
            key: what tells graphs apart: an assistant, the mode, the cadence.
            build: makes the graph. What it raises reaches everybody who waits for it, and is
                not kept.
            witnesses: what a kept graph was built from, a factory and its config for example.
                If one of them is another object now, the graph is built again.

        Raises:
            RuntimeError: `build` asks for the key it is building.

        """
        building, leads = self._enter(key, witnesses)
        if isinstance(building, _Kept):
            return building.graph
        if leads:
            return self._build(key, building, build)
        if building.thread == threading.get_ident():
            msg = f"building the graph {key!r} asks for that graph itself"
            raise RuntimeError(msg)
        return building.done.result()

    async def aget(
        self, key: Hashable, build: Callable[[], Any], *, witnesses: tuple[Any, ...] = ()
    ) -> Any:
        """`get` without blocking the loop: what is not kept is built in a thread."""
        with self._lock:
            kept = self._find(key, witnesses)
        if kept is not None:
            return kept.graph
        return await asyncio.to_thread(self.get, key, build, witnesses=witnesses)

    def clear(self) -> None:
        """Keep none of the graphs, those that are being built included."""
        with self._lock:
            self._kept.clear()
            self._under_way.clear()

    def _find(self, key: Hashable, witnesses: tuple[Any, ...]) -> _Kept | None:
        """What is kept, now used last; the lock is held."""
        kept = self._kept.get(key)
        if kept is None or not _same(kept.witnesses, witnesses):
            return None
        self._kept.move_to_end(key)
        return kept

    def _enter(self, key: Hashable, witnesses: tuple[Any, ...]) -> tuple[_Kept | _Building, bool]:
        """What is kept or under way, and whether it is the caller's to build."""
        with self._lock:
            kept = self._find(key, witnesses)
            if kept is not None:
                return kept, False
            building = self._under_way.get(key)
            if building is not None and _same(building.witnesses, witnesses):
                return building, False
            # One of other witnesses goes on for those who wait for it
            building = self._under_way[key] = _Building(witnesses)
            return building, True

    def _build(self, key: Hashable, building: _Building, build: Callable[[], Any]) -> Any:
        try:
            graph = build()
            cap = _cap(self._cap() if callable(self._cap) else self._cap)
        except BaseException as error:
            with self._lock:
                if self._under_way.get(key) is building:
                    del self._under_way[key]
            building.done.set_exception(error)
            raise
        with self._lock:
            if self._under_way.get(key) is building:
                del self._under_way[key]
                self._kept[key] = _Kept(graph, building.witnesses)
                self._kept.move_to_end(key)
            while len(self._kept) > cap:
                self._kept.popitem(last=False)
        building.done.set_result(graph)
        return graph


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
