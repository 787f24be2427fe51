"""Whether the installed LangGraph keeps a delta write that begins a thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver.state.mutation import mutation_graph_of

__all__ = ["loses_first_write"]


@cache
def loses_first_write() -> bool:
    """Whether `update_state` on an empty thread loses what it writes to delta channels.

    Releases before 1.2.5 do: they file a write under the checkpoint it builds on, and there
    is none. Found out by trying, in memory.
    """
    graph = mutation_graph_of({"log": DeltaChannel(_extend, list)}, "probe")
    graph.checkpointer = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "probe"}}
    graph.update_state(config, {"log": ["written"]}, as_node="probe")
    return bool(graph.get_state(config).values.get("log") != ["written"])


def _extend(current: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*current, *(item for write in writes for item in write)]
