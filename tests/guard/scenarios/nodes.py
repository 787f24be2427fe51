"""The nodes that scenarios are made of; each says its name and how much it heard before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from langgraph.types import interrupt

from guard.scenarios.kinds import heard, say

__all__ = ["BrokenError", "ask", "fail_once", "silent", "speak"]

Node = Callable[[Any], Any]
_PATIENCE = 60.0


class BrokenError(Exception):
    """What a node fails with on purpose."""


def speak(name: str) -> Node:
    """A node that writes to both channels."""

    def node(state: Any) -> Any:
        return say(f"{name}{heard(state)}")

    return node


def silent(name: str) -> Node:
    """A node that writes to neither, but to a plain channel that keeps its last value."""

    def node(state: Any) -> Any:
        return {"x": heard(state)}

    return node


def ask(name: str, times: int = 1) -> Node:
    """A node that asks before it speaks."""

    def node(state: Any) -> Any:
        answers = [str(interrupt(f"{name}?{number}")) for number in range(times)]
        return say(f"{name}{heard(state)}={'+'.join(answers)}")

    return node


def fail_once(name: str, failures: int = 1, after: threading.Event | None = None) -> Node:
    """A node that fails before it speaks, `failures` times; not before `after` is set."""
    left = [failures]

    def node(state: Any) -> Any:
        if after is not None and not after.wait(_PATIENCE):
            message = "what the node waits for never came"
            raise TimeoutError(message)
        if left[0] > 0:
            left[0] -= 1
            raise BrokenError(name)
        return say(f"{name}{heard(state)}")

    return node
