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

_COUNTS = "deerflow_saver_counts"
_INSIDE: ContextVar[bool] = ContextVar("inside_a_saver", default=False)
_LOCK = threading.Lock()


@functools.cache
def counted(cls: type[SaverT]) -> type[SaverT]:
    """A subclass of `cls` whose instances can be counted on (`count_on`), on either face.

    The same one at every call: what the wrapper has found out about a class, it remembers for
    that class.
    """
    methods = {
        face + kind: _counting(getattr(cls, face + kind), kind)
        for kind in KINDS
        for face in ("", "a")
    }
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, _COUNTS: None}
    return cast("type[SaverT]", type(cls.__name__, (cls,), {**names, **methods}))


def count_on(saver: BaseCheckpointSaver[Any], counts: Counter[str]) -> bool:
    """Add to `counts` what callers ask of `saver` from now on; False if its class forbids it.

    Its calls to itself do not count. An async method counts under the sync one's name.
    """
    if not hasattr(type(saver), _COUNTS):
        try:
            cls: Any = type(saver)
            saver.__class__ = counted(cls)
        except TypeError:
            return False
    vars(saver)[_COUNTS] = counts
    return True


def _count(saver: Any, name: str) -> bool:
    """Whether the call has to be told from the saver's own."""
    counts = vars(saver).get(_COUNTS)
    if counts is None or _INSIDE.get():
        return False
    with _LOCK:  # put_writes come from several threads
        counts[name] += 1
    return True


def _counting(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):
        return _counting_coroutine(method, name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _count(self, name):
            return method(self, *args, **kwargs)
        token = _INSIDE.set(True)
        try:
            return method(self, *args, **kwargs)
        finally:
            _INSIDE.reset(token)

    return call


def _counting_coroutine(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _count(self, name):
            return await method(self, *args, **kwargs)
        token = _INSIDE.set(True)
        try:
            return await method(self, *args, **kwargs)
        finally:
            _INSIDE.reset(token)

    return call
