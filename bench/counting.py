"""Savers that count their calls and are otherwise the savers they are.

The wrapper decides from where a saver's methods are defined what it may rely on. So the
counting is done by a generated subclass whose methods keep their origin's `__module__`:
the instance itself carries nothing but the counts.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["COUNTED", "calls_of", "counting"]

Saver = TypeVar("Saver", bound=BaseCheckpointSaver[Any])
COUNTED = ("get_tuple", "get_delta_channel_history", "list", "put", "put_writes")


def counting(cls: type[Saver]) -> type[Saver]:
    """A subclass of `cls` whose instances have a `calls` counter."""
    methods = {name: _counted(getattr(cls, name)) for name in COUNTED}
    return type(f"Counting{cls.__name__}", (cls,), methods)


def calls_of(saver: Any) -> Counter[str]:
    """The calls since the last look, which starts the count anew."""
    calls: Counter[str] = saver.__dict__.pop("calls", Counter())
    return calls


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.__dict__.setdefault("calls", Counter())[method.__name__] += 1
        return method(self, *args, **kwargs)

    return call
