"""Setting channels to given values: settle what the head still owns, then overwrite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.graph import END
from langgraph.types import Overwrite

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.marker import is_reserved
from deerflow_saver.state.channels import channels_at, is_reducer
from deerflow_saver.state.mutation import mutation_graph_of

__all__ = ["Writer", "overwriting", "replacing"]

_LENT_CHECKPOINTER = "__pregel_checkpointer"
"""LangGraph's config key by which a parent graph lends a subgraph its saver."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The graph to write through: bound to its saver, and gated if that is the mode."""

    graph: Any

    def sync_calls(self) -> Mapping[str, Callable[[Any], Any]]:
        """The operations on the sync face."""
        return {
            "get_tuple": self.graph.checkpointer.get_tuple,
            "update": lambda asked: asked[0].update_state(*asked[1:3], as_node=asked[3]),
        }

    def async_calls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """The operations on the async face."""
        return {
            "get_tuple": self.graph.checkpointer.aget_tuple,
            "update": lambda asked: asked[0].aupdate_state(*asked[1:3], as_node=asked[3]),
        }

    def mutation(self, config: RunnableConfig, as_node: str) -> tuple[Any, RunnableConfig]:
        """The mutation graph of the config's namespace, and the config to call it with."""
        checkpoint_ns = configurable(config).get("checkpoint_ns") or ""
        graph = mutation_graph_of(channels_at(self.graph, checkpoint_ns) or {}, as_node)
        graph.checkpointer = self.graph.checkpointer
        if not checkpoint_ns:
            return graph, config
        lent = {**configurable(config), _LENT_CHECKPOINTER: self.graph.checkpointer}
        return graph, {**config, "configurable": lent}


def replacing(
    writer: Writer, config: RunnableConfig, values: Mapping[str, Any], as_node: str
) -> Plan[RunnableConfig]:
    """Set the channels that `values` names in a new checkpoint; gives its config.

    Where the checkpoint to be changed is the head and owns writes of finished tasks, those
    are made part of a checkpoint first, as ending the step does: readers of the head see
    them, and releases before 1.2.13 would replay them over what is set here.
    """
    row = yield "get_tuple", config
    if _owns_writes(row) and (yield from _is_head(config, row)):
        settled = yield "update", (writer.graph, _at(config, row.config), None, END)
        config = _at(config, settled)
        row = yield "get_tuple", config
    channels = channels_at(writer.graph, configurable(config).get("checkpoint_ns") or "") or {}
    graph, config = writer.mutation(config, as_node)
    return (yield "update", (graph, config, overwriting(values, channels, row), as_node))  # type: ignore[no-any-return]


def _owns_writes(row: Any) -> bool:
    return row is not None and any(
        not is_reserved(channel) for _, channel, _ in row.pending_writes or ()
    )


def _is_head(config: RunnableConfig, row: Any) -> Plan[bool]:
    """Whether the row that `config` selected is the newest: others' writes have a child."""
    if not configurable(config).get("checkpoint_id"):
        return True
    names = {k: v for k, v in configurable(config).items() if k != "checkpoint_id"}
    head = yield "get_tuple", {**config, "configurable": names}
    return head is not None and head.checkpoint["id"] == row.checkpoint["id"]


def _at(config: RunnableConfig, place: RunnableConfig) -> RunnableConfig:
    """`config` addressed at the checkpoint that `place` names."""
    return {**config, "configurable": {**configurable(config), **configurable(place)}}


def overwriting(values: Mapping[str, Any], channels: Mapping[str, Any], row: Any) -> dict[str, Any]:
    """`values` such that they replace what reducer channels hold, and merge with nothing.

    A reducer channel that holds nothing takes its first write as it is, wrapper included
    (`BinaryOperatorAggregate.update`), so there the plain value is written.
    """
    stored = {} if row is None else row.checkpoint["channel_values"]
    return {
        name: Overwrite(value) if _wrapped(name, value, channels, stored) else value
        for name, value in values.items()
    }


def _wrapped(name: str, value: Any, channels: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    channel = channels.get(name)
    if not is_reducer(channel) or isinstance(value, Overwrite):
        return False
    if isinstance(channel, BinaryOperatorAggregate):
        return name in stored or channel.is_available()
    return True
