"""State schemas for a channel mode: which channels become delta channels, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any, TypeVar, cast

import wrapt
from cachetools import LRUCache, cached

from deerflow_saver.channel_mode import (
    DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
    CheckpointChannelMode,
    resolve_checkpoint_snapshot_frequency,
)
from deerflow_saver.channel_mode.freeze import check_mode
from deerflow_saver.state.annotations import delta_annotations
from deerflow_saver.state.deriving import derived
from deerflow_saver.state.thread_state import DeltaThreadState, ThreadState

__all__ = [
    "adapt_state_schema_for_mode",
    "get_thread_state_schema",
    "normalize_middleware_state_schemas",
]

M = TypeVar("M")

_SCHEMAS = 256
"""Adapted schemas kept; one more and the longest unused is made anew when it is asked for."""


def get_thread_state_schema(
    mode: CheckpointChannelMode, snapshot_frequency: int | None = None
) -> Any:
    """`ThreadState` for a mode.

    Args:
        mode: `"full"` or `"delta"`.
        snapshot_frequency: updates between two snapshots in delta mode; None for the
            process's frozen cadence, else 10.

    Returns:
        In full mode `ThreadState`, in delta mode `DeltaThreadState`, or at another cadence
        `DeltaThreadState_f<cadence>`; the same class at every call.

    Raises:
        InvalidConfigError: one of the values is none.

    """
    if check_mode(mode) == "full":
        return ThreadState
    frequency = resolve_checkpoint_snapshot_frequency(snapshot_frequency)
    if frequency == DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY:
        return DeltaThreadState
    return _adapted(ThreadState, frequency, ("messages",), f"DeltaThreadState_f{frequency}")


def adapt_state_schema_for_mode(
    schema: Any,
    mode: CheckpointChannelMode,
    snapshot_frequency: int | None = None,
    *,
    channels: Iterable[str] = ("messages",),
) -> Any:
    """The schema with its reducer channels as delta channels, if that is the mode.

    Args:
        schema: a TypedDict, a dataclass, a pydantic model, or a plain class with annotations.
        mode: `"full"` gives `schema` itself.
        snapshot_frequency: as for `get_thread_state_schema`.
        channels: the channels to adapt. `messages` is added where it is missing and becomes a
            channel of messages where it has no reducer; of the others those that `schema`
            declares with a reducer are adapted.

    Returns:
        A subclass of `schema` that keeps everything else, required and optional keys,
        defaults and validators included; the same class at every call.

    Raises:
        InvalidConfigError: a value is none, one of `channels` is a channel of another kind, or
            its annotation names what cannot be found.

    """
    if check_mode(mode) == "full":
        return schema
    frequency = resolve_checkpoint_snapshot_frequency(snapshot_frequency)
    target = getattr(schema, "__origin__", schema)
    name = f"Delta{target.__module__.replace('.', '_')}_{target.__name__}_f{frequency}"
    return _adapted(schema, frequency, tuple(dict.fromkeys(channels)), name)


def normalize_middleware_state_schemas(
    middleware: Sequence[M],
    mode: CheckpointChannelMode,
    snapshot_frequency: int | None = None,
    *,
    channels: Iterable[str] = ("messages",),
) -> list[M]:
    """The middleware for an agent in a mode, each with its `state_schema` adapted.

    Args:
        middleware: what `create_agent` is given; nothing of it changes.
        mode: `"full"` gives the same items.
        snapshot_frequency: as for `get_thread_state_schema`.
        channels: as for `adapt_state_schema_for_mode`.

    Returns:
        A new list. An adapted item is the same object seen through a proxy that differs in
        `state_schema` only: what a middleware counts or holds, it counts and holds once.

    Raises:
        InvalidConfigError: as `adapt_state_schema_for_mode`.

    """
    wanted = tuple(channels)

    def adapted(item: M) -> M:
        schema = getattr(item, "state_schema", None)
        if schema is None:
            return item
        fitting = adapt_state_schema_for_mode(schema, mode, snapshot_frequency, channels=wanted)
        return item if fitting is schema else cast("M", _WithSchema(item, fitting))

    return [adapted(item) for item in middleware]


class _WithSchema(wrapt.BaseObjectProxy[Any]):
    """A middleware with another `state_schema`."""

    def __init__(self, middleware: Any, schema: Any) -> None:
        super().__init__(middleware)
        self._self_schema = schema

    @property
    def state_schema(self) -> Any:
        """The adapted schema."""
        return self._self_schema


@cached(LRUCache(_SCHEMAS), lock=RLock())
def _adapted(schema: Any, frequency: int, channels: tuple[str, ...], name: str) -> Any:
    annotations = delta_annotations(schema, frequency, channels)
    return derived(schema, name, annotations) if annotations else schema
