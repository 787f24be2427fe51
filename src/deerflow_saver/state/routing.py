"""Which graph a call goes to, with which saver, and what it is told."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot

from deerflow_saver._arguments import configurable
from deerflow_saver.channel_mode.freeze import CheckpointChannelMode
from deerflow_saver.channel_mode.gate import async_calls, sync_calls
from deerflow_saver.channel_mode.marker import (
    ambient_mode_hidden,
    claims_mode,
    with_checkpoint_mode,
    without_mode,
)
from deerflow_saver.state.channels import channels_at, graph_at
from deerflow_saver.state.gated import GatedSaver

__all__ = ["Route", "Selection", "async_operations", "public", "route_of", "sync_operations"]

_LENT_CHECKPOINTER = "__pregel_checkpointer"
"""LangGraph's config key by which a parent graph lends a subgraph its saver."""


@dataclass(frozen=True, slots=True)
class Route:
    """A graph to call, and the config to call it with."""

    graph: Any
    config: RunnableConfig

    @property
    def channels(self) -> Mapping[str, Any]:
        """The graph's channel table; empty if it is not known."""
        found = getattr(self.graph, "channels", None)
        return found if isinstance(found, Mapping) else {}

    def to(self, graph: Any) -> Route:
        """The same call, to another graph with the same saver and the same types to decode."""
        graph.checkpointer = self.graph.checkpointer
        if hasattr(self.graph, "_serde_allowlist"):
            graph._serde_allowlist = self.graph._serde_allowlist  # noqa: SLF001 - as LangGraph's copies
        return Route(graph, self.config)

    def at(self, place: RunnableConfig) -> Route:
        """The same call, addressed at the checkpoint that `place` names."""
        names = {**configurable(self.config), **configurable(place)}
        return Route(self.graph, {**self.config, "configurable": names})


def route_of(
    graph: Any, checkpointer: Any, mode: CheckpointChannelMode, config: RunnableConfig
) -> Route:
    """Where a call with `config` goes: to `graph`, or to the subgraph of its namespace.

    The graph called is a copy without a mode of its own, bound to the saver, which is gated
    in full mode. A subgraph is called itself: releases before 1.2.13 would read its delta
    channels without a saver, as empty.
    """
    prepared = with_checkpoint_mode(config, mode)
    if not isinstance(graph, Pregel):
        return Route(graph, prepared)
    checkpoint_ns = configurable(prepared).get("checkpoint_ns") or ""
    found = graph_at(graph, checkpoint_ns)
    called: Any = copy.copy(found if isinstance(found, Pregel) else graph)
    if called.config:
        called.config = without_mode(called.config)
    per_thread = called.checkpointer is True
    saver = _gated(graph, checkpointer) if mode == "full" else checkpointer
    # With the types the graph lets pass: releases before 1.2.13 walk with the saver as it is here
    called.checkpointer = called._apply_checkpointer_allowlist(saver)  # noqa: SLF001
    if checkpoint_ns and isinstance(found, Pregel):
        called.store = graph.store
        names = prepared["configurable"]
        names["checkpoint_ns"] = _without_tasks(checkpoint_ns) if per_thread else checkpoint_ns
        names[_LENT_CHECKPOINTER] = called.checkpointer
    return Route(called, prepared)


def _gated(graph: Any, checkpointer: Any) -> Any:
    if not isinstance(checkpointer, BaseCheckpointSaver):
        return checkpointer
    return GatedSaver(checkpointer, lambda checkpoint_ns: channels_at(graph, checkpoint_ns))


def _without_tasks(checkpoint_ns: str) -> str:
    """Where a `checkpointer=True` subgraph keeps its one history per thread."""
    return "|".join(part.split(":")[0] for part in checkpoint_ns.split("|"))


def public(snapshot: Any) -> Any:
    """A snapshot without what is internal in its config: the mode, a lent saver."""
    if not isinstance(snapshot, StateSnapshot) or not claims_mode(snapshot.config):
        return snapshot
    config = without_mode(snapshot.config)
    config["configurable"].pop(_LENT_CHECKPOINTER, None)
    config.pop("metadata", None)
    return snapshot._replace(config=config)


@contextmanager
def _alone(config: RunnableConfig) -> Iterator[None]:
    """Hide what the run around a call would put into its config: a mode, and the run's own place.

    Some releases before 1.2.9 merge the run's namespace and saver into a call that names a
    thread of its own, and store it there (`langgraph._internal._config.ensure_config`).
    """
    with ambient_mode_hidden():
        around = var_child_runnable_config.get()
        if not around or not around.get("configurable") or "thread_id" not in configurable(config):
            yield
            return
        token = var_child_runnable_config.set({**around, "configurable": {}})
        try:
            yield
        finally:
            var_child_runnable_config.reset(token)


# -- the operations of the accessor's plans -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """Which states of a history are wanted, and what is done with each, in order."""

    options: Mapping[str, Any]
    limit: int | None
    take: Callable[[Any], Any]

    def full(self, taken: list[Any]) -> bool:
        """Whether no more are wanted."""
        return len(taken) == self.limit


def sync_operations(checkpointer: Any) -> Mapping[str, Callable[[Any], Any]]:
    """On the sync face of a graph and its saver."""

    def get_state(route: Route) -> Any:
        with _alone(route.config):
            return route.graph.get_state(route.config)

    def states(asked: tuple[Route, Selection]) -> list[Any]:
        (route, selection), taken = asked, list[Any]()
        with _alone(route.config):
            for state in route.graph.get_state_history(route.config, **selection.options):
                taken.append(selection.take(state))
                if selection.full(taken):
                    break
        return taken

    def update(asked: tuple[Route, Any, Any]) -> Any:
        route, values, as_node = asked
        with _alone(route.config):
            return route.graph.update_state(route.config, values, as_node=as_node)

    graphs = {"get_state": get_state, "states": states, "update": update}
    return {**_of_saver(sync_calls, checkpointer), **graphs}


def async_operations(checkpointer: Any) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """On the async face of a graph and its saver."""

    async def get_state(route: Route) -> Any:
        with _alone(route.config):
            return await route.graph.aget_state(route.config)

    async def states(asked: tuple[Route, Selection]) -> list[Any]:
        (route, selection), taken = asked, list[Any]()
        with _alone(route.config):
            history: AsyncIterator[Any] = route.graph.aget_state_history(
                route.config, **selection.options
            )
            async for state in history:
                taken.append(selection.take(state))
                if selection.full(taken):
                    break
        return taken

    async def update(asked: tuple[Route, Any, Any]) -> Any:
        route, values, as_node = asked
        with _alone(route.config):
            return await route.graph.aupdate_state(route.config, values, as_node=as_node)

    graphs = {"get_state": get_state, "states": states, "update": update}
    return {**_of_saver(async_calls, checkpointer), **graphs}


def _of_saver(calls: Callable[[Any], Mapping[str, Any]], checkpointer: Any) -> Mapping[str, Any]:
    """The saver's operations; none without a saver, where only a stub graph is asked."""
    return {} if checkpointer is None else calls(checkpointer)
