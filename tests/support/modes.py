"""One graph in both channel modes: list, dict and set channels, and some that store nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

__all__ = ["builder", "compiled", "raw_child", "schema", "thread", "visible"]

Graph = CompiledStateGraph[Any, Any, Any, Any]


def _log(current: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*current, *(item for write in writes for item in write)]


def _facts(current: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(current)
    for write in writes:
        merged.update(write)
    return merged


def _tags(current: set[str], writes: Sequence[set[str]]) -> set[str]:
    return set(current).union(*writes)


def _one(reducer: Any) -> Any:
    """The reducer of an ordinary channel: one write at a time."""

    def merge(current: Any, write: Any) -> Any:
        return reducer(current, [write])

    return merge


_REDUCERS: dict[str, tuple[Any, Any]] = {
    "log": (list[str], _log),
    "facts": (dict[str, Any], _facts),
    "tags": (set[str], _tags),
}


@cache
def schema(mode: str, frequency: int = 3) -> Any:
    """The state of either mode."""
    fields: dict[str, Any] = {"title": str, "hint": Annotated[str, EphemeralValue], "do": str}
    for name, (kind, reducer) in _REDUCERS.items():
        how: Any = _one(reducer)
        if mode == "delta":
            how = DeltaChannel(reducer, snapshot_frequency=frequency)
        fields[name] = Annotated[kind, how]
    return TypedDict("State", fields, total=False)  # type: ignore[operator]


def _work(state: Any) -> dict[str, Any]:
    done = len(state.get("log", ()))
    return {
        "log": [f"work {done}"],
        "facts": {f"k{done % 3}": done},
        "tags": {f"t{done % 4}"},
        "hint": "again",
    }


def _ask(state: Any) -> dict[str, Any]:
    if state.get("do") == "ask":
        return {"log": [f"answered {interrupt('?')}"]}
    return {"title": f"after {len(state.get('log', ()))}"}


def builder(mode: str, frequency: int = 3) -> Any:
    """Two nodes side by side, one of which may ask."""
    made = StateGraph(schema(mode, frequency))
    made.add_node("work", _work)
    made.add_node("ask", _ask)
    for name in ("work", "ask"):
        made.add_edge(START, name)
        made.add_edge(name, END)
    return made


def compiled(mode: str, checkpointer: Any = None, frequency: int = 3) -> Graph:
    """The graph, with a saver or without."""
    graph: Graph = builder(mode, frequency).compile(checkpointer=checkpointer)
    return graph


def thread(thread_id: str = "1", **names: Any) -> Any:
    """A config that names a thread."""
    return {"configurable": {"thread_id": thread_id, **names}}


def visible(snapshot: Any) -> dict[str, Any]:
    """What a reader sees of a state; empty channels of either mode look alike."""
    return {name: value for name, value in snapshot.values.items() if value not in ([], {}, set())}


def raw_child(saver: Any, config: Any) -> Any:
    """A child of the head as some tools put it: the same values, metadata made afresh."""
    head = saver.get_tuple(config)
    checkpoint = {**head.checkpoint, "id": str(uuid6())}
    step = head.metadata.get("step", 0) + 1
    return saver.put(head.config, checkpoint, {"source": "update", "step": step}, {})
