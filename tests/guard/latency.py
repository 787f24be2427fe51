"""Savers whose writes arrive late.

A held write waits until the next checkpoint of its thread and namespace is stored, which is as
late as it can be, or a few milliseconds if none comes. Half of these savers keep the look of
the saver they slow down, so that a wrapper treats them alike; the others look like a stranger's.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

__all__ = ["LATENCIES", "Delay", "Latency", "late"]

Delay = Literal["prompt", "late-plain", "late-all"]
LATENCIES: tuple[Delay, ...] = ("prompt", "late-plain", "late-all")
_LONGEST = 0.003


@dataclass(frozen=True, slots=True)
class Latency:
    """Which writes are held: none, those that carry no delta channel, or all."""

    delay: Delay = "prompt"
    delta: frozenset[str] = frozenset()
    alike: bool = True
    """Whether the class passes for the one it slows down."""

    def holds(self, writes: Any) -> bool:
        """Whether these writes wait."""
        return self.delay == "late-all" or not any(name in self.delta for name, _ in writes)


@cache
def late(cls: type, latency: Latency) -> Any:
    """The class, or a slow subclass of it."""
    if latency.delay == "prompt":
        return cls
    slow = _async_methods if hasattr(cls, "aput") and cls.__name__.startswith("Async") else _methods
    methods = slow(cls, latency)
    if cls.__name__ == "InMemorySaver":
        methods |= _async_methods(cls, latency, blocking=True)
    if latency.alike:
        methods = {name: functools.wraps(getattr(cls, name))(m) for name, m in methods.items()}
    return type(cls.__name__ if latency.alike else f"Late{cls.__name__}", (cls,), methods)


def _place(config: Any) -> tuple[str, str]:
    found = config["configurable"]
    return found["thread_id"], found.get("checkpoint_ns", "")


def _next_put(saver: Any, config: Any, make: Callable[[], Any]) -> Any:
    events = saver.__dict__.setdefault("_next_puts", {})
    return events.setdefault(_place(config), make())


def _was_put(saver: Any, config: Any) -> None:
    waiting = saver.__dict__.setdefault("_next_puts", {}).pop(_place(config), None)
    if waiting is not None:
        waiting.set()


def _methods(cls: Any, latency: Latency) -> dict[str, Any]:
    def put_writes(self: Any, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if latency.holds(writes):
            _next_put(self, config, threading.Event).wait(_LONGEST)
        cls.put_writes(self, config, writes, task_id, task_path)

    def put(self: Any, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = cls.put(self, config, checkpoint, metadata, new_versions)
        _was_put(self, config)
        return stored

    return {"put_writes": put_writes, "put": put}


def _async_methods(cls: Any, latency: Latency, *, blocking: bool = False) -> dict[str, Any]:
    async def aput_writes(
        self: Any, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        if latency.holds(writes):
            event = _next_put(self, config, asyncio.Event)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), _LONGEST)
        if blocking:
            cls.put_writes(self, config, writes, task_id, task_path)
        else:
            await cls.aput_writes(self, config, writes, task_id, task_path)

    async def aput(
        self: Any, config: Any, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> Any:
        arguments = (self, config, checkpoint, metadata, new_versions)
        stored = cls.put(*arguments) if blocking else await cls.aput(*arguments)
        _was_put(self, config)
        return stored

    return {"aput_writes": aput_writes, "aput": aput}
