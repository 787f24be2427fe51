"""Values to write, made anew at each call, and the damage a caller may do to them."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

__all__ = ["Spec", "build", "specs", "spoil"]

Spec = tuple[str, int]
"""What to build: building twice gives equal values that share nothing."""


def _ai(n: int) -> AIMessage:
    call = {"name": "search", "args": {"q": [n]}, "id": f"call-{n}"}
    return AIMessage(f"ai {n}", id=f"ai-{n}", tool_calls=[call], additional_kwargs={"n": {"m": n}})


_MAKERS: dict[str, Callable[[int], Any]] = {
    "human": lambda n: HumanMessage(f"human {n}", id=f"h-{n}"),
    "humans": lambda n: [HumanMessage(f"human {i}", id=f"h-{i}") for i in range(n)],
    "ai": _ai,
    "mixed": lambda n: [_ai(n), {"n": n}, ToolMessage("r", tool_call_id=f"call-{n}"), (n,)],
    "blocks": lambda n: [HumanMessage([{"type": "text", "text": f"{n}"}], name="user")],
    "texts": lambda n: [f"text {n}"],
    "nested": lambda n: {"key": {"inner": [n, {"deep": [n]}]}, f"k{n}": n},
    "by-number": lambda n: {n: "int key"},
    "pair": lambda n: (n, [n]),
    "set": lambda n: {n, n + 1},
    "deque": lambda n: deque([n]),
    "bytes": lambda n: [bytes([n]), b""],
    "bytearray": lambda n: bytearray([n]),
    "none": lambda n: None,
    "number": lambda n: n,
    "flag": lambda n: bool(n % 2),
    "text": lambda n: f"text {n}",
    "float": lambda n: [n + 0.5, float("inf")],
    "foreign": lambda n: [datetime.fromtimestamp(n, UTC), Decimal(n), UUID(int=n)],
    "overwrite": lambda n: Overwrite([n]),
    "big": lambda n: [HumanMessage("x" * 1500, id=f"big-{n}")],
}
_COMMON = ("human", "humans", "ai", "texts", "nested", "big")

specs: st.SearchStrategy[Spec] = st.tuples(
    st.one_of(st.sampled_from(_COMMON), st.sampled_from(tuple(_MAKERS))), st.integers(0, 5)
)


def build(spec: Spec) -> Any:
    """A fresh value."""
    kind, n = spec
    return _MAKERS[kind](n)


def spoil(value: Any, *, bytearrays: bool = True, _seen: set[int] | None = None) -> None:
    """Change everything inside `value` that can be changed in place."""
    seen = set() if _seen is None else _seen
    if id(value) in seen:
        return
    seen.add(id(value))
    for part in _parts(value):
        spoil(part, bytearrays=bytearrays, _seen=seen)
    if isinstance(value, BaseMessage):
        value.content = "spoiled"
        value.id = "spoiled"
        value.additional_kwargs["spoiled"] = True
    elif isinstance(value, dict):
        for key in list(value)[:1]:
            value[key] = "spoiled"
        value["spoiled"] = ["spoiled"]
    elif isinstance(value, list | deque):
        value.reverse()
        value.append("spoiled")
    elif isinstance(value, set):
        value.add("spoiled")
    elif isinstance(value, bytearray) and bytearrays:
        value.extend(b"spoiled")


def _parts(value: Any) -> list[Any]:
    if isinstance(value, BaseMessage):
        return [part for part in value.__dict__.values() if isinstance(part, list | dict)]
    if isinstance(value, _DeltaSnapshot):
        return [value.value]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | deque):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return []
