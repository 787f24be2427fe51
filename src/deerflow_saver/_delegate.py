"""A proxy class per wrapped type, so that the wrapper has exactly the methods its saver has.

LangGraph's conformance suite and others look at `type(saver)` to see what a saver can do,
and LangGraph looks at the signature of `put_writes`. So the class of a wrapper is made from
the class it wraps: every method the wrapper has a say in is present only if the wrapped
class overrides the base class there, with the wrapped method's signature and docstring.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["proxy_class"]

_classes: dict[tuple[type, type], type] = {}


def proxy_class(base: type, wrapped: type, methods: dict[str, Callable[..., Any]]) -> type:
    """The subclass of `base` that proxies instances of `wrapped`.

    `methods` are the wrapper's own versions; those of methods that `wrapped` does not
    override are left out, and reach the wrapped saver as any other attribute does.
    """
    known = _classes.get((base, wrapped))
    if known is not None:
        return known
    namespace: dict[str, Any] = {
        name: _dressed(name, method, wrapped)
        for name, method in methods.items()
        if _overrides(wrapped, name)
    }
    made = type(f"{base.__name__}[{wrapped.__name__}]", (base,), namespace)
    return _classes.setdefault((base, wrapped), made)


def _overrides(wrapped: type, name: str) -> bool:
    method = getattr(wrapped, name, None)
    if method is None:
        return False
    # The history has a default that works for any saver that can be read
    return name.endswith("get_delta_channel_history") or method is not getattr(
        BaseCheckpointSaver, name, None
    )


def _dressed(name: str, method: Callable[..., Any], wrapped: type) -> Callable[..., Any]:
    """`method` looking like the wrapped class's own: name, docstring, signature."""
    original = inspect.getattr_static(wrapped, name)
    target = getattr(original, "__func__", original)
    if not callable(target):
        return method
    if inspect.iscoroutinefunction(method):

        @functools.wraps(target)
        async def acall(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await method(self, *args, **kwargs)

        return acall

    @functools.wraps(target)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    return call
