"""What the installed LangGraph does, asked of its behaviour: no version number decides a test."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from langgraph.pregel import _checkpoint as checkpoints

__all__ = ["accepts_task_path"]


def accepts_task_path(put_writes: Callable[..., Any]) -> bool:
    """Whether LangGraph passes `task_path` to this method.

    It asks `put_writes_accepts_task_path`; releases without that function ask the same in
    `PregelLoop.__init__`.
    """
    asked = getattr(checkpoints, "put_writes_accepts_task_path", None)
    if asked is not None:
        return bool(asked(put_writes))
    return signature(put_writes).parameters.get("task_path") is not None
