"""The published way to cache delta histories, for comparison: one `get_tuple` per ancestor.

A bounded number of whole histories is kept, one per checkpoint and channel. A history that
is not there is put together from the parent's, recursively, reading one row per step; past
a depth budget the wrapped saver walks. Nothing is learnt from what is written, and readers
share the kept objects. This is an implementation of that algorithm written for the
benchmark, synchronous only, and meant for nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

__all__ = ["AncestorCache"]

_DEPTH = 8
_ENTRIES = 128

Key = tuple[str, str, str, str]
"""Thread, namespace, checkpoint id, channel."""


class _Histories:
    """The least recently used histories go first; lists are copied, their elements shared."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._kept: OrderedDict[Key, DeltaChannelHistory] = OrderedDict()

    def get(self, key: Key) -> DeltaChannelHistory | None:
        entry = self._kept.get(key)
        if entry is None:
            return None
        self._kept.move_to_end(key)
        return _copied(entry)

    def set(self, key: Key, entry: DeltaChannelHistory) -> None:
        self._kept[key] = _copied(entry)
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)

    def forget(self, thread_id: str) -> None:
        for key in [key for key in self._kept if key[0] == thread_id]:
            del self._kept[key]


class AncestorCache(BaseCheckpointSaver[Any]):
    """Wrap `inner` and answer histories by following parents through a cache of histories."""

    def __init__(self, inner: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=inner.serde)
        self.inner = inner
        self._histories = _Histories(_ENTRIES)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The histories, whatever way is needed for each channel."""
        target = self.inner.get_tuple(config) if channels else None
        if target is None:
            return self.inner.get_delta_channel_history(config=config, channels=channels)
        return {channel: self._history(target, channel) for channel in channels}

    def _history(self, target: CheckpointTuple, channel: str) -> DeltaChannelHistory:
        key = _key(target.config, channel)
        entry = self._histories.get(key)
        if entry is None:
            entry = self._resolved(target, channel, _DEPTH)
            self._histories.set(key, entry)
        return entry

    def _resolved(self, target: CheckpointTuple, channel: str, budget: int) -> DeltaChannelHistory:
        """The parent's history and the parent's own writes, or what the parent stores and those."""
        if target.parent_config is None:
            return {"writes": []}
        parent = self.inner.get_tuple(target.parent_config)
        if parent is None:
            return {"writes": []}
        own = [write for write in parent.pending_writes or () if write[1] == channel]
        values = parent.checkpoint["channel_values"]
        if channel in values:
            return {"writes": own, "seed": values[channel]}
        before = self._before(parent, channel, budget)
        return {**before, "writes": before["writes"] + own}

    def _before(self, parent: CheckpointTuple, channel: str, budget: int) -> DeltaChannelHistory:
        key = _key(parent.config, channel)
        entry = self._histories.get(key)
        if entry is not None:
            return entry
        if budget > 0:
            entry = self._resolved(parent, channel, budget - 1)
        else:
            walked = self.inner.get_delta_channel_history(config=parent.config, channels=[channel])
            entry = walked[channel]
        self._histories.set(key, entry)
        return entry

    # -- everything else is the wrapped saver's ------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Pass through."""
        return self.inner.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the interface's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Pass through."""
        return self.inner.list(config, filter=filter, before=before, limit=limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Pass through."""
        return self.inner.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Pass through."""
        self.inner.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Pass through, then forget the thread."""
        self.inner.delete_thread(thread_id)
        self._histories.forget(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Pass through."""
        return self.inner.get_next_version(current, channel)


def _copied(entry: DeltaChannelHistory) -> DeltaChannelHistory:
    return {**entry, "writes": list(entry["writes"])}


def _key(config: RunnableConfig, channel: str) -> Key:
    configurable = config["configurable"]
    return (
        configurable["thread_id"],
        configurable.get("checkpoint_ns", ""),
        configurable["checkpoint_id"],
        channel,
    )
