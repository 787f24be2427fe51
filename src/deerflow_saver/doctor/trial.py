"""A trial of a saver on one thread: what it keeps, and in which order it gives it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.base import empty_checkpoint

from deerflow_saver._plan import Plan

__all__ = ["CHANNEL", "Observed", "trial"]

CHANNEL = "deerflow_saver_trial"
_TASKS = (("b", "3"), ("c", "1"), ("a", "2"))
"""(task id, task path) in the order they are stored; three orders that all differ."""
_VALUES = tuple(range(len(_TASKS)))
_AGAIN = 9

Order = Literal["task path", "task id", "as stored"]
_ORDERS: dict[Order, tuple[int, ...]] = {
    "task path": tuple(sorted(_VALUES, key=lambda number: _TASKS[number][1])),
    "task id": tuple(sorted(_VALUES, key=lambda number: _TASKS[number][0])),
    "as stored": _VALUES,
}


@dataclass(frozen=True, slots=True)
class Observed:
    """What a trial saw.

    Attributes:
        parent_links: whether a checkpoint's parent is named and still there.
        write_order: in which order parallel writes come back; None if some are missing.
        idempotent_writes: whether the first value of a (task id, index) stays.
        delta_history: whether the writes of an ancestor come back at all.

    """

    parent_links: bool
    write_order: Order | None
    idempotent_writes: bool
    delta_history: bool


def trial(thread_id: str) -> Plan[tuple[Observed, Any]]:
    """Two checkpoints, three tasks' writes between them, one of them stored twice.

    Yields a saver's method and its arguments; gives what was seen, and the second checkpoint's
    config. The thread stays: see `forget`.
    """
    thread = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    first = yield from _put(thread, -1)
    for value, (task_id, path) in enumerate(_TASKS):
        yield "put_writes", (first, [(CHANNEL, value)], task_id, path)
    task_id, path = _TASKS[0]
    yield "put_writes", (first, [(CHANNEL, _AGAIN)], task_id, path)
    second = yield from _put(first, 0)
    return (yield from _seen(first, second)), second


def _put(config: Any, step: int) -> Plan[Any]:
    metadata = {"source": "loop", "step": step, "parents": {}}
    return (yield "put", (config, empty_checkpoint(), metadata, {}))


def _seen(first: Any, second: Any) -> Plan[Observed]:
    row = yield "get_tuple", (second,)
    older = yield "get_tuple", (first,)
    history = yield "get_delta_channel_history", (second, [CHANNEL])
    values = tuple(value for _, _, value in history.get(CHANNEL, {}).get("writes", ()))
    names_parent = row is not None and _id(row.parent_config) == _id(first)
    return Observed(
        parent_links=names_parent and older is not None,
        write_order=next((name for name, order in _ORDERS.items() if order == values), None),
        idempotent_writes=_AGAIN not in values and len(values) == len(_VALUES),
        delta_history=bool(values),
    )


def _id(config: Any) -> Any:
    return (config or {}).get("configurable", {}).get("checkpoint_id")
