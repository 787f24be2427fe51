"""A proxy class per wrapped type, so that the wrapper has exactly the methods its saver has.

LangGraph's conformance suite and others look at `type(saver)` to see what a saver can do,
and LangGraph looks at the signature of `put_writes`. So the class of a wrapper is made from
the class it wraps: every method the wrapper has a say in is present only if the wrapped
class overrides the base class there, with the wrapped method's signature and docstring.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["proxy_class"]

logger = logging.getLogger("deerflow_saver")

_classes: dict[tuple[type, type, bool], type] = {}
_WITH_PATH = inspect.Signature(
    [
        *(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in ("self", "config", "writes", "task_id")
        ),
        inspect.Parameter("task_path", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=""),
    ]
)


def proxy_class(
    base: type, wrapped: type, methods: dict[str, Callable[..., Any]], *, name_paths: bool = False
) -> type:
    """The subclass of `base` that proxies instances of `wrapped`.

    Args:
        base: the wrapper's class.
        wrapped: the wrapped saver's class.
        methods: the wrapper's own versions; those of methods that `wrapped` does not
            override are left out, and reach the wrapped saver as any other attribute does.
        name_paths: whether `put_writes` names `task_path` where the wrapped one takes it
            among `*args`. LangGraph gives the path only to a method that names it.

    """
    key = (base, wrapped, name_paths)
    known = _classes.get(key)
    if known is not None:
        return known
    namespace: dict[str, Any] = {
        name: _dressed(name, method, wrapped)
        for name, method in methods.items()
        if _overrides(wrapped, name)
    }
    for name in ("put_writes", "aput_writes") if name_paths else ():
        if name in namespace:
            _name_path(wrapped, name, namespace[name])
    made = type(f"{base.__name__}[{wrapped.__name__}]", (base,), namespace)
    return _classes.setdefault(key, made)


def _name_path(wrapped: type, name: str, method: Any) -> None:
    """Give `method` a signature that names `task_path`, if the wrapped one accepts it."""
    parameters = inspect.signature(method).parameters
    if "task_path" in parameters:
        return
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        method.__signature__ = _WITH_PATH
        return
    logger.warning(
        "%s.%s takes no task_path, so LangGraph gives none, and the writes of parallel tasks "
        "replay in another order than they were applied in. Add the parameter task_path and pass "
        "it on.",
        wrapped.__name__,
        name,
    )


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
