"""`CheckpointStateAccessor`: the one way to a thread's state, in either channel mode.

It goes through a compiled graph, because a raw read of a delta channel gives no value; it
puts the process's mode into every call; and in full mode nothing of a delta thread passes.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.channel_mode.freeze import (
    CheckpointChannelMode,
    resolve_checkpoint_channel_mode,
)
from deerflow_saver.channel_mode.gate import (
    aensure_checkpoint_mode_compatible,
    async_calls,
    ensure_checkpoint_mode_compatible,
    judge_row,
    raise_if_snapshot_incompatible,
    sync_calls,
)
from deerflow_saver.channel_mode.marker import (
    ambient_mode_hidden,
    claims_mode,
    discard_internal_mode,
    with_checkpoint_mode,
)
from deerflow_saver.state.channels import channels_at, refuse_unknown_fields
from deerflow_saver.state.gated import GatedSaver
from deerflow_saver.state.replacing import Writer, replacing

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

    """

    graph: Any
    checkpointer: Any
    mode: CheckpointChannelMode = "full"

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
            InvalidConfigError: `mode` is none.
            CheckpointModeReconfigurationError: the process is frozen in the other mode.

        """
        settled = resolve_checkpoint_channel_mode(mode)
        bound = copy.copy(graph)
        bound.checkpointer = checkpointer
        if store is not None:
            bound.store = store
        return cls(graph=bound, checkpointer=checkpointer, mode=settled)

    # -- reading -----------------------------------------------------------------------------

    def get(self, config: RunnableConfig, **options: Any) -> StateSnapshot:
        """The materialised state; one fetch. `options` (`subgraphs`) go to `get_state`.

        Raises:
            CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.

        """
        with ambient_mode_hidden():
            snapshot = self._calling().get_state(self._prepared(config), **options)
        return self._passed(snapshot)

    async def aget(self, config: RunnableConfig, **options: Any) -> StateSnapshot:
        """`get` on the async face."""
        with ambient_mode_hidden():
            snapshot = await self._calling().aget_state(self._prepared(config), **options)
        return self._passed(snapshot)

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

        """
        prepared = self._prepared(config)
        if limit is not None and limit <= 0:
            return []
        found: list[StateSnapshot] = []
        with ambient_mode_hidden():
            for snapshot in self._calling().get_state_history(
                prepared, **_selection(prepared, limit, before, filter)
            ):
                found.append(self._passed(snapshot))
                if len(found) == limit:
                    break
        return found

    async def ahistory(
        self,
        config: RunnableConfig,
        *,
        limit: int | None = None,
        before: RunnableConfig | str | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
    ) -> list[StateSnapshot]:
        """`history` on the async face."""
        prepared = self._prepared(config)
        if limit is not None and limit <= 0:
            return []
        found: list[StateSnapshot] = []
        with ambient_mode_hidden():
            async for snapshot in self._calling().aget_state_history(
                prepared, **_selection(prepared, limit, before, filter)
            ):
                found.append(self._passed(snapshot))
                if len(found) == limit:
                    break
        return found

    def get_metadata(self, config: RunnableConfig) -> dict[str, Any] | None:
        """A checkpoint's metadata, nothing materialised; None if there is no checkpoint.

        Raises:
            CheckpointModeMismatchError: the thread needs delta mode, and this is full mode.

        """
        return drive(self._metadata(config), sync_calls(self.checkpointer))

    async def aget_metadata(self, config: RunnableConfig) -> dict[str, Any] | None:
        """`get_metadata` on the async face."""
        return await adrive(self._metadata(config), async_calls(self.checkpointer))

    def _metadata(self, config: RunnableConfig) -> Plan[dict[str, Any] | None]:
        row = yield "get_tuple", self._prepared(config)
        if row is None:
            return None
        if self.mode == "full":
            yield from judge_row(row, self._channels(config))
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
        prepared = self._prepared(config)
        refuse_unknown_fields(self.graph, prepared, values)
        ensure_checkpoint_mode_compatible(
            self.checkpointer, prepared, self.mode, channels=self._channels(config)
        )
        with ambient_mode_hidden():
            return self._calling().update_state(prepared, values, as_node=as_node)  # type: ignore[no-any-return]

    async def aupdate(
        self, config: RunnableConfig, values: Any, *, as_node: str | None = None
    ) -> RunnableConfig:
        """`update` on the async face."""
        prepared = self._prepared(config)
        refuse_unknown_fields(self.graph, prepared, values)
        await aensure_checkpoint_mode_compatible(
            self.checkpointer, prepared, self.mode, channels=self._channels(config)
        )
        with ambient_mode_hidden():
            return await self._calling().aupdate_state(prepared, values, as_node=as_node)  # type: ignore[no-any-return]

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
        prepared = self._prepared(config)
        refuse_unknown_fields(self.graph, prepared, values)
        ensure_checkpoint_mode_compatible(
            self.checkpointer, prepared, self.mode, channels=self._channels(config)
        )
        writer = Writer(self._calling())
        with ambient_mode_hidden():
            return drive(replacing(writer, prepared, values, as_node), writer.sync_calls())

    async def areplace(
        self, config: RunnableConfig, values: dict[str, Any], *, as_node: str = MANUAL_UPDATE
    ) -> RunnableConfig:
        """`replace` on the async face."""
        prepared = self._prepared(config)
        refuse_unknown_fields(self.graph, prepared, values)
        await aensure_checkpoint_mode_compatible(
            self.checkpointer, prepared, self.mode, channels=self._channels(config)
        )
        writer = Writer(self._calling())
        with ambient_mode_hidden():
            return await adrive(replacing(writer, prepared, values, as_node), writer.async_calls())

    # -- between the two ------------------------------------------------------------------------

    def _prepared(self, config: RunnableConfig) -> RunnableConfig:
        return with_checkpoint_mode(config, self.mode)

    def _passed(self, snapshot: Any) -> StateSnapshot:
        """A snapshot behind the gate, without the mode in its config: that is internal."""
        raise_if_snapshot_incompatible(snapshot, self.mode)
        if not isinstance(snapshot, StateSnapshot) or not claims_mode(snapshot.config):
            return snapshot  # type: ignore[no-any-return]
        config = discard_internal_mode(snapshot.config)
        if not config.get("metadata"):
            config.pop("metadata", None)
        return snapshot._replace(config=config)

    def _channels(self, config: RunnableConfig) -> Any:
        return channels_at(self.graph, configurable(config).get("checkpoint_ns") or "")

    def _calling(self) -> Any:
        """The graph to call: a copy without a mode of its own, and gated in full mode."""
        if not isinstance(self.graph, Pregel):
            return self.graph
        graph: Any = copy.copy(self.graph)
        if graph.config:
            graph.config = discard_internal_mode(graph.config)
        graph.checkpointer = self.checkpointer
        if self.mode == "full" and isinstance(self.checkpointer, BaseCheckpointSaver):
            graph.checkpointer = GatedSaver(
                self.checkpointer, lambda checkpoint_ns: channels_at(self.graph, checkpoint_ns)
            )
        return graph


def before_config(config: RunnableConfig, before: RunnableConfig | str) -> RunnableConfig:
    """The config of a checkpoint given by its config or, in the thread of `config`, its id."""
    if not isinstance(before, str):
        return before
    names = configurable(config)
    return {
        "configurable": {
            "thread_id": names.get("thread_id"),
            "checkpoint_ns": names.get("checkpoint_ns") or "",
            "checkpoint_id": before,
        }
    }


def _selection(
    config: RunnableConfig,
    limit: int | None,
    before: RunnableConfig | str | None,
    metadata: dict[str, Any] | None,
) -> dict[str, Any]:
    """The options of `get_state_history` that were given."""
    selection: dict[str, Any] = {"limit": limit}
    if before is not None:
        selection["before"] = before_config(config, before)
    if metadata is not None:
        selection["filter"] = metadata
    return selection
