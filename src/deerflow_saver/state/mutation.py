"""Graphs that only write: one node that does nothing, so that a write leaves nothing to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from deerflow_saver.channel_mode.freeze import CheckpointChannelMode, check_mode
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.channels import state_channels

__all__ = ["build_state_mutation_graph", "mutation_graph_of"]


def build_state_mutation_graph(
    as_node: str,
    mode: CheckpointChannelMode,
    state_schema: Any = None,
    *,
    snapshot_frequency: int | None = None,
) -> Any:
    """A compiled graph, without a saver, whose only node `as_node` does nothing.

    Args:
        as_node: the node's name, which the checkpoints it writes name as their origin.
        mode: which `ThreadState` is meant if `state_schema` is None.
        state_schema: the thread's effective schema, in this mode already
            (`graph_state_schema`). A saver that stores a checkpoint's values in one piece, as
            SQLite's do, stores none for channels it does not have.
        snapshot_frequency: the cadence of the `ThreadState` of delta mode.

    Raises:
        InvalidConfigError: no `as_node`, one that no node can have, or no mode.

    """
    _check_node(as_node)
    check_mode(mode)
    if state_schema is None:
        from deerflow_saver.state.schema import get_thread_state_schema

        state_schema = get_thread_state_schema(mode, snapshot_frequency)
    return _compiled(as_node, state_schema)


def mutation_graph_of(channels: Mapping[str, Any], as_node: str) -> Any:
    """A mutation graph with all state channels of a compiled graph's table, private ones too.

    Raises:
        InvalidConfigError: no `as_node`, or one that no node can have.

    """
    _check_node(as_node)
    fields: dict[str, Any] = {
        # The type too: LangGraph makes delta channels anew from it, and decodes only known types
        name: Annotated[channel.typ, channel]
        for name, channel in state_channels(channels).items()
    }
    return _compiled(as_node, TypedDict("MutatedState", fields, total=False))  # type: ignore[operator]


_SEPARATORS = frozenset("|:")
"""What LangGraph parts the nodes and tasks of a namespace with."""


def _check_node(as_node: str) -> None:
    """Refuse what is no name of a node.

    Some of LangGraph's own names mean something else to `update_state`: `__copy__` copies a
    checkpoint and forgets the values, `__input__` starts a run.
    """
    if not as_node:
        raise InvalidConfigError("as_node is required for checkpoint state mutation")
    if as_node.startswith("__") or not _SEPARATORS.isdisjoint(as_node):
        msg = f"as_node {as_node!r} is no name for a node: LangGraph keeps it for itself"
        raise InvalidConfigError(msg)


def _compiled(as_node: str, schema: Any) -> Any:
    builder: Any = StateGraph(schema)
    builder.add_node(as_node, _nothing)
    builder.add_edge(START, as_node)
    builder.add_edge(as_node, END)
    return builder.compile()


def _nothing(_state: Any) -> dict[str, Any]:
    return {}
