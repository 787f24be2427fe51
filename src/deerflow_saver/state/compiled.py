"""What is handed over by mistake: a graph before `compile`, or a graph where an accessor is due."""

from __future__ import annotations

from typing import Any

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from deerflow_saver.errors import InvalidConfigError

__all__ = ["refuse_graph", "refuse_uncompiled"]


def refuse_uncompiled(graph: Any) -> None:
    """Refuse a builder where a compiled graph is due.

    Raises:
        InvalidConfigError: `graph` is a `StateGraph`.

    """
    if isinstance(graph, StateGraph):
        msg = "the graph is not compiled: pass what builder.compile(...) gives"
        raise InvalidConfigError(msg)


def refuse_graph(accessor: Any) -> None:
    """Refuse a graph where an accessor is due.

    Raises:
        InvalidConfigError: `accessor` is a graph.

    """
    if isinstance(accessor, Pregel | StateGraph):
        msg = (
            f"an accessor is needed, got {type(accessor).__name__}: "
            "CheckpointStateAccessor.bind(graph, saver) makes one"
        )
        raise InvalidConfigError(msg)
