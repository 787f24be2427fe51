"""Setting channels to given values: settle what the head still owns, then overwrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels import binop
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.graph import END
from langgraph.types import Overwrite

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.marker import is_reserved
from deerflow_saver.state.channels import is_reducer
from deerflow_saver.state.mutation import mutation_graph_of
from deerflow_saver.state.routing import Route

__all__ = ["overwriting", "replacing"]


def replacing(route: Route, values: Mapping[str, Any], as_node: str) -> Plan[RunnableConfig]:
    """Set the channels that `values` names in a new checkpoint; gives its config.

    Where the checkpoint to be changed is the head and owns writes of finished tasks, those
    are made part of a checkpoint first, as ending the step does: readers of the head see
    them, and releases before 1.2.13 would replay them over what is set here. Ending the step
    cannot be undone, so what would make the second write fail is found out before.
    """
    mutation = mutation_graph_of(route.channels, as_node)
    row = yield "get_tuple", route.config
    if _owns_writes(row) and (yield from _is_head(route.config, row)):
        route.graph.checkpointer.serde.dumps_typed(dict(values))
        settled = yield "update", (route.at(row.config), None, END)
        route = route.at(settled)
        row = yield "get_tuple", route.config
    written = overwriting(values, route.channels, row)
    return (yield "update", (route.to(mutation), written, as_node))  # type: ignore[no-any-return]


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


def overwriting(values: Mapping[str, Any], channels: Mapping[str, Any], row: Any) -> dict[str, Any]:
    """`values` such that they replace what reducer channels hold, and merge with nothing.

    A reducer channel that holds nothing takes its first write as it is, wrapper included
    (`BinaryOperatorAggregate.update`), and so does every channel without a reducer: there
    the plain value is written.
    """
    stored = {} if row is None else row.checkpoint["channel_values"]
    plain = {name: _plain(value, channels.get(name)) for name, value in values.items()}
    return {
        name: Overwrite(value) if _wrapped(name, channels, stored) else value
        for name, value in plain.items()
    }


def _plain(value: Any, channel: Any) -> Any:
    """The value that an `Overwrite` holds; its JSON forms mean one to reducers only."""
    if isinstance(value, Overwrite):
        return value.value
    if not is_reducer(channel):
        return value
    is_overwrite, inner = binop._get_overwrite(value)  # noqa: SLF001 - tells its three forms
    return inner if is_overwrite else value


def _wrapped(name: str, channels: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    channel = channels.get(name)
    if isinstance(channel, BinaryOperatorAggregate):
        return name in stored or channel.is_available()
    return is_reducer(channel)
