"""Count what reaches a saver, without becoming another saver.

The wrapper judges a saver by where its methods are defined, and treats instances with
methods of their own as strangers. So the count is taken in a subclass whose methods name
the original's module, as `functools.wraps` has it: what is measured is what an application
gets that uses the original.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["KINDS", "count_on", "counted"]

KINDS = ("get_tuple", "get_delta_channel_history", "list", "put", "put_writes")

SaverT = TypeVar("SaverT", bound=BaseCheckpointSaver[Any])

_INSIDE: ContextVar[bool] = ContextVar("inside_a_saver", default=False)


def counted(cls: type[SaverT], counts: Counter[str]) -> type[SaverT]:
    """`cls`, adding to `counts` what callers ask of it, on either face.

    Its calls to itself do not count. An async method counts under the sync one's name.
    """
    lock = threading.Lock()

    def count(name: str) -> None:
        with lock:  # put_writes come from several threads
            counts[name] += 1

    methods = {
        face + kind: _counting(getattr(cls, face + kind), kind, count)
        for kind in KINDS
        for face in ("", "a")
    }
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return cast("type[SaverT]", type(cls.__name__, (cls,), {**names, **methods}))


def count_on(saver: BaseCheckpointSaver[Any], counts: Counter[str]) -> bool:
    """Count on a saver that exists already; False if its class cannot be changed."""
    try:
        saver.__class__ = counted(type(saver), counts)
    except TypeError:
        return False
    return True


def _counting(
    method: Callable[..., Any], name: str, count: Callable[[str], None]
) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):
        return _counting_coroutine(method, name, count)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _INSIDE.get():
            return method(self, *args, **kwargs)
        count(name)
        token = _INSIDE.set(True)
        try:
            return method(self, *args, **kwargs)
        finally:
            _INSIDE.reset(token)

    return call


def _counting_coroutine(
    method: Callable[..., Any], name: str, count: Callable[[str], None]
) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _INSIDE.get():
            return await method(self, *args, **kwargs)
        count(name)
        token = _INSIDE.set(True)
        try:
            return await method(self, *args, **kwargs)
        finally:
            _INSIDE.reset(token)

    return call
