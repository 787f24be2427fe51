"""What a compiled graph's channel table says: which names can be written, and which merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.types import Command
from pydantic import BaseModel

from deerflow_saver.channel_mode.marker import is_reserved
from deerflow_saver.errors import InvalidConfigError, UnknownStateFieldError

__all__ = [
    "channels_at",
    "graph_at",
    "graph_reducer_channels",
    "graph_state_schema",
    "graph_writable_channels",
    "is_reducer",
    "refuse_delta_channels",
    "refuse_unknown_fields",
    "state_channels",
]

Channels = Mapping[str, Any]


def graph_at(graph: Any, checkpoint_ns: str) -> Any:
    """The graph that keeps its state in a namespace: `graph`, or one of its subgraphs.

    None if `graph` declares no such subgraph (a tool may have invoked it).
    """
    path = _path_of(checkpoint_ns)
    if not path:
        return graph
    return next((found for _, found in graph.get_subgraphs(namespace=path, recurse=True)), None)


def _path_of(checkpoint_ns: str) -> str:
    """The nodes of a namespace, without task ids and the numbers of repeated calls."""
    parts = [part.split(":")[0] for part in checkpoint_ns.split("|")]
    return "|".join(part for part in parts if part and not part.isdigit())


def channels_at(graph: Any, checkpoint_ns: str) -> Channels | None:
    """The channel table of a namespace's graph; None if it is not known."""
    found = getattr(graph_at(graph, checkpoint_ns), "channels", None)
    return found if isinstance(found, Mapping) else None


def state_channels(channels: Channels) -> dict[str, BaseChannel[Any, Any, Any]]:
    """The channels that hold state: LangGraph's own and managed values left out."""
    return {
        name: channel
        for name, channel in channels.items()
        if isinstance(channel, BaseChannel) and not is_reserved(name)
    }


def is_reducer(channel: Any) -> bool:
    """Whether writes to a channel are merged, so that only an `Overwrite` replaces its value."""
    return isinstance(channel, BinaryOperatorAggregate | DeltaChannel)


def graph_state_schema(graph: Any) -> Any:
    """The state schema a graph was built with; None for what is no compiled `StateGraph`."""
    builder = getattr(graph, "builder", None)
    return getattr(builder, "state_schema", None)


def graph_writable_channels(graph: Any) -> frozenset[str] | None:
    """Names of the channels that hold a graph's state; None if it has no channels."""
    channels = getattr(graph, "channels", None)
    return frozenset(state_channels(channels)) if channels else None


def graph_reducer_channels(graph: Any) -> frozenset[str] | None:
    """Names of the channels that merge writes; None if the graph has no channel table."""
    channels = getattr(graph, "channels", None)
    if channels is None:
        return None
    return frozenset(name for name, channel in channels.items() if is_reducer(channel))


def refuse_delta_channels(channels: Channels) -> None:
    """Refuse to write through a graph with delta channels in full mode.

    It would make a delta thread, which no process in that mode reads.

    Raises:
        InvalidConfigError: the graph has delta channels.

    """
    delta = sorted(name for name, found in channels.items() if isinstance(found, DeltaChannel))
    if delta:
        raise InvalidConfigError(
            f"the graph has delta channels ({', '.join(delta)}), and this is full mode: the "
            "thread it would write could not be read here. Compile it in full mode"
        )


def refuse_unknown_fields(channels: Channels, values: Any) -> None:
    """Refuse values for channels that a graph does not have.

    LangGraph drops them without a word (`CompiledStateGraph.attach_node`). Nothing is
    refused if the table is not known.

    Raises:
        UnknownStateFieldError: some of the names are unknown.

    """
    if not channels or "__root__" in channels:
        return
    known = state_channels(channels)
    unknown = [name for name in _named(values) if name not in known]
    if unknown:
        raise UnknownStateFieldError(unknown)


def _named(values: Any) -> Iterable[Any]:
    """The names in an update, in each form that LangGraph takes one."""
    if isinstance(values, Command):
        return _named(values.update)
    if isinstance(values, list | tuple):
        return [name for value in values for name in _named_in(value)]
    return list(values) if isinstance(values, Mapping) else _fields(values)


def _named_in(item: Any) -> Iterable[Any]:
    """The names in one of several updates; `Command.update` may be pairs of name and value."""
    is_pair = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)  # noqa: PLR2004
    return [item[0]] if is_pair else _named(item)


def _fields(values: Any) -> Iterable[str]:
    """The fields that a state object sets; those of a model left at their default are not."""
    if isinstance(values, BaseModel):
        return values.model_fields_set
    if is_dataclass(values):
        return [field.name for field in fields(values) if getattr(values, field.name) is not None]
    return ()
