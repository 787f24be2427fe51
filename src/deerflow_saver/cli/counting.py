"""Count what reaches a saver, without becoming another saver.

The wrapper judges a saver by where its methods are defined, and treats instances with
methods of their own as strangers. So the count is taken in a subclass whose methods name
the original's module, as `functools.wraps` has it: what is measured is what an application
gets that uses the original.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["KINDS", "counted"]

KINDS = ("get_tuple", "get_delta_channel_history", "list", "put", "put_writes")

SaverT = TypeVar("SaverT", bound=BaseCheckpointSaver[Any])


def counted(cls: type[SaverT], counts: Counter[str]) -> type[SaverT]:
    """`cls`, adding to `counts` what callers ask of it; its calls to itself do not count."""
    inside = threading.local()
    lock = threading.Lock()

    def count(name: str) -> None:
        with lock:  # put_writes come from several threads
            counts[name] += 1

    methods = {name: _counting(getattr(cls, name), name, count, inside) for name in KINDS}
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return cast("type[SaverT]", type(cls.__name__, (cls,), {**names, **methods}))


def _counting(
    method: Callable[..., Any], name: str, count: Callable[[str], None], inside: threading.local
) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "saver", False):
            return method(self, *args, **kwargs)
        count(name)
        inside.saver = True
        try:
            return method(self, *args, **kwargs)
        finally:
            inside.saver = False

    return call
