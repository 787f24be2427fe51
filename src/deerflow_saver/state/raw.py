"""Reading a full thread without its graph: for when the graph cannot be built.

In full mode a checkpoint holds every channel's value, so a thread stays readable while the
agent's factory is broken. What the graph alone knows, tasks and the next nodes, is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.channel_mode.freeze import CheckpointChannelMode, check_mode
from deerflow_saver.channel_mode.gate import async_calls, judge_row, sync_calls
from deerflow_saver.channel_mode.marker import is_reserved
from deerflow_saver.errors import InvalidConfigError

__all__ = ["RawCheckpointReadAccessor", "RawCheckpointSnapshot"]


@dataclass(frozen=True, slots=True)
class RawCheckpointSnapshot:
    """What a stored row tells of a state; the fields of a `StateSnapshot`, some empty."""

    checkpoint_exists: bool
    config: RunnableConfig
    values: dict[str, Any]
    metadata: dict[str, Any] | None
    parent_config: RunnableConfig | None
    created_at: str
    tasks: tuple[Any, ...] = ()
    tasks_known: bool = False
    """False: whether a task is pending cannot be told without the graph."""
    next: tuple[str, ...] = ()


class RawCheckpointReadAccessor:
    """Reads threads straight from `checkpointer`, in full mode only, and writes nothing.

    Raises:
        InvalidConfigError: `mode` is delta: a delta channel's value is in no checkpoint.

    """

    def __init__(self, checkpointer: Any, mode: CheckpointChannelMode = "full") -> None:
        if check_mode(mode) != "full":
            raise InvalidConfigError(
                "raw reads give no value of a delta channel: in delta mode, read through a "
                "CheckpointStateAccessor with the thread's graph"
            )
        self.checkpointer = checkpointer
        self.mode: CheckpointChannelMode = mode

    def get(self, config: RunnableConfig) -> RawCheckpointSnapshot:
        """The stored state.

        Raises:
            CheckpointModeMismatchError: the thread needs delta mode.

        """
        return drive(_get(config), self._sync_calls())

    async def aget(self, config: RunnableConfig) -> RawCheckpointSnapshot:
        """`get` on the async face."""
        return await adrive(_get(config), self._async_calls())

    def history(
        self, config: RunnableConfig, *, limit: int | None = None
    ) -> list[RawCheckpointSnapshot]:
        """Stored states, newest first; from a `checkpoint_id` in `config` on, that included.

        Args:
            config: names the thread.
            limit: at most so many; None for all, none for 0 or less.

        Raises:
            CheckpointModeMismatchError: the thread needs delta mode.

        """
        return drive(_history(config, limit), self._sync_calls())

    async def ahistory(
        self, config: RunnableConfig, *, limit: int | None = None
    ) -> list[RawCheckpointSnapshot]:
        """`history` on the async face."""
        return await adrive(_history(config, limit), self._async_calls())

    def _sync_calls(self) -> Mapping[str, Callable[[Any], Any]]:
        def listed(asked: tuple[Any, dict[str, Any]]) -> list[Any]:
            return list(self.checkpointer.list(asked[0], **asked[1]))

        return {**sync_calls(self.checkpointer), "list": listed}

    def _async_calls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        async def listed(asked: tuple[Any, dict[str, Any]]) -> list[Any]:
            return [row async for row in self.checkpointer.alist(asked[0], **asked[1])]

        return {**async_calls(self.checkpointer), "list": listed}


def _get(config: RunnableConfig) -> Plan[RawCheckpointSnapshot]:
    row = yield "get_tuple", config
    yield from judge_row(row)
    return _snapshot(config, row)


def _history(config: RunnableConfig, limit: int | None) -> Plan[list[RawCheckpointSnapshot]]:
    if limit is not None and limit <= 0:
        return []
    rows: list[Any] = []
    selection: dict[str, Any] = {"limit": limit}
    if configurable(config).get("checkpoint_id"):
        anchor = yield "get_tuple", config
        if anchor is None:
            return []
        yield from judge_row(anchor)
        rows.append(anchor)
        selection = {"limit": limit and limit - 1, "before": anchor.config}
        names = {k: v for k, v in configurable(config).items() if k != "checkpoint_id"}
        config = {**config, "configurable": names}
    if selection["limit"] != 0:
        for row in (yield "list", (config, selection)):
            yield from judge_row(row)
            rows.append(row)
    return [_snapshot(config, row) for row in rows]


def _snapshot(config: RunnableConfig, row: Any) -> RawCheckpointSnapshot:
    if row is None:
        return RawCheckpointSnapshot(
            checkpoint_exists=False, config=config, values={}, metadata=None, parent_config=None,
            created_at="",
        )  # fmt: skip
    metadata = dict(row.metadata or {})
    values = row.checkpoint.get("channel_values") or {}
    return RawCheckpointSnapshot(
        checkpoint_exists=True,
        config=row.config,
        values={name: value for name, value in values.items() if not is_reserved(name)},
        metadata=metadata,
        parent_config=row.parent_config,
        created_at=str(row.checkpoint.get("ts") or metadata.get("created_at") or ""),
    )
