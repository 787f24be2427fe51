"""`CheckpointStateAccessor`: the one way to a thread's state, in either channel mode.

It goes through a compiled graph, because a raw read of a delta channel gives no value; it
puts the process's mode into every call; and in full mode nothing of a delta thread passes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.channel_mode.freeze import (
    CheckpointChannelMode,
    resolve_checkpoint_channel_mode,
)
from deerflow_saver.channel_mode.gate import (
    ensured,
    judge_row,
    raise_if_snapshot_incompatible,
)
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.beginning import begins_badly
from deerflow_saver.state.channels import refuse_delta_channels, refuse_unknown_fields
from deerflow_saver.state.compiled import refuse_uncompiled
from deerflow_saver.state.mutation import mutation_graph_of
from deerflow_saver.state.replacing import replacing
from deerflow_saver.state.routing import (
    Route,
    Selection,
    async_operations,
    public,
    route_of,
    sync_operations,
)
from deerflow_saver.state.unreadable import (
    may_be_unreadable,
    refuse_unreadable_row,
    refuse_unreadable_snapshot,
)

__all__ = ["CheckpointStateAccessor", "before_config"]

MANUAL_UPDATE = "manual_state_update"
"""The node that a replacement is written as, if none is named."""


@dataclass
class CheckpointStateAccessor:
    """Reads and writes thread state through `graph`, as a process in `mode` must.

    Attributes:
        graph: a compiled graph; it is never changed.
        checkpointer: where the threads are.
        mode: `"full"` or `"delta"`.

    Raises:
        InvalidConfigError: `mode` is none.
        CheckpointModeReconfigurationError: the process is frozen in the other mode.

    """

    graph: Any
    checkpointer: Any
    mode: CheckpointChannelMode = "full"

    def __post_init__(self) -> None:
        """Refuse a mode the process does not work in."""
        self.mode = resolve_checkpoint_channel_mode(self.mode)

    @classmethod
    def bind(
        cls,
        graph: Any,
        checkpointer: Any,
        *,
        store: Any = None,
        mode: CheckpointChannelMode | None = None,
    ) -> Self:
        """An accessor with a copy of `graph` that uses `checkpointer`, and `store` if given.

        The graph itself may be shared with others; the copy shares its nodes and channels.

        Args:
            graph: a compiled graph.
            checkpointer: a saver.
            store: a store for the graph's nodes and managed values.
            mode: None for the process's frozen mode, else `"full"`.

        Raises:
            InvalidConfigError: `mode` is none, or the graph is not compiled.
            CheckpointModeReconfigurationError: the process is frozen in the other mode.

        """
        refuse_uncompiled(graph)
        bound = copy.copy(graph)
        # As `compile` does: releases before 1.2.13 walk with the saver as it is here
        allow = getattr(bound, "_apply_checkpointer_allowlist", lambda saver: saver)
        bound.checkpointer = allow(checkpointer)
        if store is not None:
            bound.store = store
        return cls(bound, checkpointer, resolve_checkpoint_channel_mode(mode))

    # -- reading -----------------------------------------------------------------------------

    def get(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """The materialised state; one fetch, and one per paused subgraph if those are wanted.

        Raises:
            CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.

        """
        return drive(self._get(config, subgraphs=subgraphs), sync_operations(self.checkpointer))

    async def aget(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """`get` on the async face."""
        plan = self._get(config, subgraphs=subgraphs)
        return await adrive(plan, async_operations(self.checkpointer))

    def _get(self, config: RunnableConfig, *, subgraphs: bool) -> Plan[StateSnapshot]:
        route = self._route(config)
        snapshot = self._passed(route, (yield "get_state", route))
        if not subgraphs:
            return snapshot
        tasks = []
        for task in snapshot.tasks:
            inside: Any = task.state  # the config to read a subgraph's state with
            if isinstance(inside, dict):
                state = yield from self._get(inside, subgraphs=True)  # type: ignore[arg-type]
                task = task._replace(state=state)  # noqa: PLW2901
            tasks.append(task)
        return snapshot._replace(tasks=tuple(tasks))

    def history(
        self,
        config: RunnableConfig,
        *,
        limit: int | None = None,
        before: RunnableConfig | str | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
    ) -> list[StateSnapshot]:
        """Materialised states, newest first.

        Args:
            config: names the thread, and the namespace if it is not the root graph's.
            limit: at most so many; None for all, none for 0 or less.
            before: only older ones than this checkpoint: a config or an id. A page goes on
                from the last snapshot of the one before.
            filter: only those with this metadata.

        Raises:
            CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.
            InvalidConfigError: `before` names no checkpoint.

        """
        plan = self._history(config, limit, _options(config, limit, before, filter))
        return drive(plan, sync_operations(self.checkpointer))

    async def ahistory(
        self,
        config: RunnableConfig,
        *,
        limit: int | None = None,
        before: RunnableConfig | str | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
    ) -> list[StateSnapshot]:
        """`history` on the async face."""
        plan = self._history(config, limit, _options(config, limit, before, filter))
        return await adrive(plan, async_operations(self.checkpointer))

    def _history(
        self, config: RunnableConfig, limit: int | None, options: dict[str, Any]
    ) -> Plan[list[StateSnapshot]]:
        if limit is not None and limit <= 0:
            return []
        route = self._route(config)
        selection = Selection(options, limit, partial(self._passed, route))
        return (yield "states", (route, selection))  # type: ignore[no-any-return]

    def get_metadata(self, config: RunnableConfig) -> dict[str, Any] | None:
        """A checkpoint's metadata, nothing materialised; None if there is no checkpoint.

        Raises:
            CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.

        """
        return drive(self._metadata(config), sync_operations(self.checkpointer))

    async def aget_metadata(self, config: RunnableConfig) -> dict[str, Any] | None:
        """`get_metadata` on the async face."""
        return await adrive(self._metadata(config), async_operations(self.checkpointer))

    def _metadata(self, config: RunnableConfig) -> Plan[dict[str, Any] | None]:
        route = self._route(config)
        row = yield "get_tuple", route.config
        if row is None:
            return None
        if self.mode == "full":
            yield from judge_row(row, route.channels)
        return dict(row.metadata or {})

    # -- writing -----------------------------------------------------------------------------

    def update(
        self, config: RunnableConfig, values: Any, *, as_node: str | None = None
    ) -> RunnableConfig:
        """`update_state`, gated before anything is stored; gives the new checkpoint's config.

        Reducer channels merge what they are given; `replace` sets them.

        Raises:
            UnknownStateFieldError: `values` names channels that the graph does not have.
            CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.
            RefusedWriteError: the saver's guard refuses it.

        """
        return drive(self._update(config, values, as_node), sync_operations(self.checkpointer))

    async def aupdate(
        self, config: RunnableConfig, values: Any, *, as_node: str | None = None
    ) -> RunnableConfig:
        """`update` on the async face."""
        plan = self._update(config, values, as_node)
        return await adrive(plan, async_operations(self.checkpointer))

    def _update(
        self, config: RunnableConfig, values: Any, as_node: str | None
    ) -> Plan[RunnableConfig]:
        route = yield from self._gated(config, values)
        return (yield "update", (route, values, as_node))  # type: ignore[no-any-return]

    def replace(
        self, config: RunnableConfig, values: dict[str, Any], *, as_node: str = MANUAL_UPDATE
    ) -> RunnableConfig:
        """Set channels to `values`, reducers or not; gives the new checkpoint's config.

        Other channels keep their values. The new checkpoint has no task to run next, and
        what the head's finished tasks have written is part of the state that is changed.

        Raises:
            UnknownStateFieldError: `values` names channels that the graph does not have.
            CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.
            RefusedWriteError: the saver's guard refuses it.

        """
        return drive(self._replace(config, values, as_node), sync_operations(self.checkpointer))

    async def areplace(
        self, config: RunnableConfig, values: dict[str, Any], *, as_node: str = MANUAL_UPDATE
    ) -> RunnableConfig:
        """`replace` on the async face."""
        plan = self._replace(config, values, as_node)
        return await adrive(plan, async_operations(self.checkpointer))

    def _replace(
        self, config: RunnableConfig, values: dict[str, Any], as_node: str
    ) -> Plan[RunnableConfig]:
        _refuse_no_mapping(values)
        route = yield from self._gated(config, values)
        return (yield from replacing(route, values, as_node))

    def _gated(self, config: RunnableConfig, values: Any) -> Plan[Route]:
        """The route of a write that may be made."""
        route = self._route(config)
        refuse_unknown_fields(route.channels, values)
        if self.mode == "full":
            refuse_delta_channels(route.channels)
            yield from ensured(route.config, route.channels)
        elif route.channels and (begins_badly() or may_be_unreadable(route.channels)):
            row = yield "get_tuple", route.config
            refuse_unreadable_row(row, route.channels)
            if row is None and begins_badly():
                root = route.to(mutation_graph_of(route.channels, "begin"))
                return route.at((yield "update", (root, {}, "begin")))
        return route

    # -- both --------------------------------------------------------------------------------

    def _route(self, config: RunnableConfig) -> Route:
        return route_of(self.graph, self.checkpointer, self.mode, config)

    def _passed(self, route: Route, snapshot: Any) -> StateSnapshot:
        """A snapshot, if it may pass the gate and holds what its thread does."""
        raise_if_snapshot_incompatible(snapshot, self.mode)
        refuse_unreadable_snapshot(snapshot, route.channels)
        return public(snapshot)  # type: ignore[no-any-return]


def _refuse_no_mapping(values: Any) -> None:
    if not isinstance(values, Mapping):
        msg = f"replace needs a mapping of channels to values, got {type(values).__name__}"
        raise InvalidConfigError(msg)


def before_config(config: RunnableConfig, before: RunnableConfig | str) -> RunnableConfig:
    """The config of a checkpoint given by its config or, in the thread of `config`, its id.

    Raises:
        InvalidConfigError: `before` names no checkpoint; savers would list all of them, and
            a reader of pages would begin again and again.

    """
    names = configurable(config)
    place: RunnableConfig = (
        {
            "configurable": {
                "thread_id": names.get("thread_id"),
                "checkpoint_ns": names.get("checkpoint_ns") or "",
                "checkpoint_id": before,
            }
        }
        if isinstance(before, str)
        else before
    )
    if not configurable(place).get("checkpoint_id"):
        msg = f"before must name a checkpoint by its config or id, got {before!r}"
        raise InvalidConfigError(msg)
    return place


def _options(
    config: RunnableConfig,
    limit: int | None,
    before: RunnableConfig | str | None,
    metadata: dict[str, Any] | None,
) -> dict[str, Any]:
    """The options of `get_state_history` that were given."""
    options: dict[str, Any] = {"limit": limit}
    if before is not None:
        options["before"] = before_config(config, before)
    if metadata is not None:
        options["filter"] = metadata
    return options
