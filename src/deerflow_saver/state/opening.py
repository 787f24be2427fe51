"""From a factory of graphs to an accessor, or to raw reads where a full thread needs no graph."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Any

from deerflow_saver.channel_mode.freeze import (
    CheckpointChannelMode,
    resolve_checkpoint_channel_mode,
    resolve_checkpoint_snapshot_frequency,
)
from deerflow_saver.errors import CheckpointModeReconfigurationError
from deerflow_saver.state.accessor import CheckpointStateAccessor
from deerflow_saver.state.graph_cache import CompiledGraphCache
from deerflow_saver.state.raw import RawCheckpointReadAccessor

__all__ = ["aopen_state_accessor", "open_state_accessor"]

logger = logging.getLogger("deerflow_saver")

Accessor = CheckpointStateAccessor | RawCheckpointReadAccessor


def open_state_accessor(
    factory: Callable[[], Any],
    checkpointer: Any,
    *,
    mode: CheckpointChannelMode | None = None,
    store: Any = None,
    cache: CompiledGraphCache | None = None,
    key: Hashable = None,
    witnesses: tuple[Any, ...] = (),
) -> Accessor:
    """An accessor for the graph that `factory` compiles.

    If the factory fails, a process in full mode still reads: the accessor is then a
    `RawCheckpointReadAccessor`, which writes nothing, and a warning is logged. In delta mode
    there is no value without the graph's reducers, so the failure is raised.

    Args:
        factory: compiles the graph, in `mode` already.
        checkpointer: where the threads are.
        mode: None for the process's frozen mode, else `"full"`.
        store: a store for the graph.
        cache: where compiled graphs are kept, under `key`, the mode and the cadence.
        key: what tells this graph apart from others in `cache`.
        witnesses: what the graph is built from (`CompiledGraphCache.get`); `factory` itself
            is not one, so that a lambda may be given.

    Raises:
        CheckpointModeReconfigurationError: the process runs in another mode.
        Exception: what the factory raises, in delta mode.

    """
    settled = resolve_checkpoint_channel_mode(mode)
    try:
        graph = (
            factory()
            if cache is None
            else cache.get(_place(key, settled), factory, witnesses=witnesses)
        )
    except Exception as error:  # noqa: BLE001 - whatever a factory raises, full threads are readable
        return _degraded(error, checkpointer, settled)
    return CheckpointStateAccessor.bind(graph, checkpointer, store=store, mode=settled)


async def aopen_state_accessor(
    factory: Callable[[], Any],
    checkpointer: Any,
    *,
    mode: CheckpointChannelMode | None = None,
    store: Any = None,
    cache: CompiledGraphCache | None = None,
    key: Hashable = None,
    witnesses: tuple[Any, ...] = (),
) -> Accessor:
    """`open_state_accessor` with the factory called in a thread."""
    settled = resolve_checkpoint_channel_mode(mode)
    try:
        if cache is None:
            graph = await asyncio.to_thread(factory)
        else:
            graph = await cache.aget(_place(key, settled), factory, witnesses=witnesses)
    except Exception as error:  # noqa: BLE001 - as above
        return _degraded(error, checkpointer, settled)
    return CheckpointStateAccessor.bind(graph, checkpointer, store=store, mode=settled)


def _place(key: Hashable, mode: CheckpointChannelMode) -> Hashable:
    return key, mode, resolve_checkpoint_snapshot_frequency()


def _degraded(error: Exception, checkpointer: Any, mode: CheckpointChannelMode) -> Accessor:
    if mode == "delta" or isinstance(error, CheckpointModeReconfigurationError):
        raise error
    logger.warning("the graph cannot be built; full threads are read raw", exc_info=error)
    return RawCheckpointReadAccessor(checkpointer, mode)
