"""Whether the installed LangGraph keeps all of an update that begins a thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from functools import cache
from typing import Any

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver.state.mutation import mutation_graph_of

__all__ = ["begins_badly"]


@cache
def begins_badly() -> bool:
    """Whether `update_state` on an empty thread loses delta writes, or the call's metadata.

    Releases before 1.2.5 file a write under the checkpoint it builds on, and there is none.
    Those before 1.2.9 make one, and forget the metadata for the next. Found out by trying, in
    memory, and outside of a run that happens to be under way.
    """
    return Context().run(_kept) != (["written"], "probe")


def _kept() -> tuple[Any, Any]:
    """What is there of an update and of its metadata."""
    graph = mutation_graph_of({"log": DeltaChannel(_extend, list)}, "probe")
    graph.checkpointer = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "probe"}, "metadata": {"mark": "probe"}}
    graph.update_state(config, {"log": ["written"]}, as_node="probe")
    found = graph.get_state(config)
    return found.values.get("log"), (found.metadata or {}).get("mark")


def _extend(current: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*current, *(item for write in writes for item in write)]
