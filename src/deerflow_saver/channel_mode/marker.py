"""How a call carries its mode, and how a stored checkpoint tells the one it was written in.

A delta process stamps `"delta"` into the metadata of all it writes; no stamp means full, so
checkpoints from before need no migration. A stamp can get lost (a writer that builds metadata
afresh, a saver that ignores a config's metadata), so stored checkpoints are judged by what
LangGraph itself leaves there as well: counters, snapshots, a channel with a version and no
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.last_value import LastValue
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import is_mapping
from deerflow_saver.channel_mode.freeze import CheckpointChannelMode, check_mode

__all__ = [
    "CHECKPOINT_MODE_METADATA_KEY",
    "COUNTERS_METADATA_KEY",
    "DELTA_CHANNELS_METADATA_KEY",
    "INTERNAL_CHECKPOINT_MODE_KEY",
    "OVERRIDE_KEY",
    "Absent",
    "absent_channels",
    "ambient_mode_hidden",
    "asks_for_full",
    "checkpoint_metadata_uses_delta",
    "checkpoint_tuple_uses_delta",
    "claims_mode",
    "discard_internal_mode",
    "inject_checkpoint_mode",
    "is_reserved",
    "shows_delta",
    "snapshots_in",
    "state_snapshot_uses_delta",
    "with_checkpoint_mode",
    "without_mode",
]

INTERNAL_CHECKPOINT_MODE_KEY = "__deerflow_checkpoint_channel_mode"
"""In `configurable`, for every call: LangGraph stores no key that begins with two underscores."""
CHECKPOINT_MODE_METADATA_KEY = "deerflow_checkpoint_channel_mode"
"""In a config's `metadata`, `"delta"` only: savers store it with each checkpoint."""
DELTA_CHANNELS_METADATA_KEY = "deerflow_delta_channels"
"""In a checkpoint's metadata: the delta channels the guard knows of."""
COUNTERS_METADATA_KEY = "counters_since_delta_snapshot"
"""In a checkpoint's metadata: LangGraph's updates and supersteps since each channel's snapshot."""

OVERRIDE_KEY = "__deerflow_allow_non_head_write"
"""In `configurable`: lets a call past the guard, so it is an administrator's to set."""

_STORED = (CHECKPOINT_MODE_METADATA_KEY, DELTA_CHANNELS_METADATA_KEY, COUNTERS_METADATA_KEY)
"""What tells a delta thread in stored metadata: nobody's to claim in a config."""

_EXIT_ANCHOR_STEP = -2
"""Step of the first checkpoint under exit durability in a thread with delta channels."""

Channels = Mapping[str, Any]
"""The channels of a compiled graph: `graph.channels`."""


# -- what a call carries -------------------------------------------------------------------


def inject_checkpoint_mode(config: RunnableConfig, mode: CheckpointChannelMode) -> None:
    """Put the mode into `config`, in place; whatever a caller claimed there is overwritten.

    Raises:
        InvalidConfigError: `mode` is none.

    """
    check_mode(mode)
    names = _section(config, "configurable")
    metadata = _section(config, "metadata")
    for key in _STORED:  # savers would store them from either section
        names.pop(key, None)
        metadata.pop(key, None)
    names[INTERNAL_CHECKPOINT_MODE_KEY] = mode
    if mode == "delta":
        metadata[CHECKPOINT_MODE_METADATA_KEY] = "delta"


def _section(config: RunnableConfig, name: str) -> MutableMapping[str, Any]:
    parts = cast("dict[str, Any]", config)
    found = parts.get(name)
    if not isinstance(found, MutableMapping):
        found = parts[name] = dict(found or {})
    return found


def with_checkpoint_mode(
    config: RunnableConfig | None, mode: CheckpointChannelMode
) -> RunnableConfig:
    """A copy of `config` that carries the mode; the caller's dicts stay as they are.

    Raises:
        InvalidConfigError: `mode` is none.

    """
    copied = _copied(config, "configurable", "metadata")
    inject_checkpoint_mode(copied, mode)
    return copied


def discard_internal_mode(config: RunnableConfig | None) -> RunnableConfig:
    """A copy of a request's config without what a client may not set, for those who build configs.

    That is any claim to a mode, and the override of the guard.
    """
    return _without(config, (INTERNAL_CHECKPOINT_MODE_KEY, OVERRIDE_KEY, *_STORED))


def without_mode(config: RunnableConfig | None) -> RunnableConfig:
    """A copy of a config of this process's own without any claim to a mode."""
    return _without(config, (INTERNAL_CHECKPOINT_MODE_KEY, *_STORED))


def _without(config: RunnableConfig | None, keys: tuple[str, ...]) -> RunnableConfig:
    sections = ("configurable", "metadata", "context")
    copied = _copied(config, *sections)
    for name in sections:
        section = cast("dict[str, Any]", copied).get(name)
        if isinstance(section, dict):
            for key in keys:
                section.pop(key, None)
    return copied


def _copied(config: RunnableConfig | None, *sections: str) -> RunnableConfig:
    copied: dict[str, Any] = dict(config or {})
    for name in sections:
        if isinstance(copied.get(name), Mapping):
            copied[name] = dict(copied[name])
    return cast("RunnableConfig", copied)


@contextmanager
def ambient_mode_hidden() -> Iterator[None]:
    """Hide the mode of the run around this call, if there is one.

    LangGraph merges the config of the run it is called in into a call's own
    (`langgraph._internal._config.ensure_config`). Full mode is the absence of a mark, which
    a mark from around would fill; so what the call says itself must be all there is.
    """
    around = var_child_runnable_config.get()
    if not around or not claims_mode(around):
        yield
        return
    token = var_child_runnable_config.set(without_mode(around))
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def claims_mode(config: Mapping[str, Any]) -> bool:
    """Whether a config carries a mode."""
    names, metadata = config.get("configurable") or {}, config.get("metadata") or {}
    return INTERNAL_CHECKPOINT_MODE_KEY in names or CHECKPOINT_MODE_METADATA_KEY in metadata


def asks_for_full(configurable: Mapping[str, Any]) -> bool:
    """Whether a call says that it is made in full mode."""
    return configurable.get(INTERNAL_CHECKPOINT_MODE_KEY) == "full"


# -- what a stored checkpoint tells ----------------------------------------------------------


def checkpoint_metadata_uses_delta(metadata: Any) -> bool:
    """Whether metadata shows that a checkpoint belongs to a delta thread."""
    if not isinstance(metadata, Mapping):
        return False
    if metadata.get(CHECKPOINT_MODE_METADATA_KEY) == "delta":
        return True
    return (
        bool(metadata.get(COUNTERS_METADATA_KEY))
        or bool(metadata.get(DELTA_CHANNELS_METADATA_KEY))
        or metadata.get("step") == _EXIT_ANCHOR_STEP
    )


def snapshots_in(values: Any) -> set[str]:
    """The channels of which `values`, a checkpoint's or a state's, holds a snapshot unopened."""
    if not values or not is_mapping(values):
        return set()
    return {name for name, value in values.items() if isinstance(value, _DeltaSnapshot)}


def state_snapshot_uses_delta(snapshot: Any) -> bool:
    """Whether a `StateSnapshot` shows a delta thread: its metadata, or a snapshot unopened.

    Releases before 1.2.16 hand a stored snapshot through a plain channel as it is.
    """
    if snapshot is None:
        return False
    return checkpoint_metadata_uses_delta(getattr(snapshot, "metadata", None)) or bool(
        snapshots_in(getattr(snapshot, "values", None))
    )


def shows_delta(row: Any) -> bool:
    """Whether a `CheckpointTuple` shows a delta thread by its metadata or a stored snapshot."""
    values = _part(row, "channel_values")
    return checkpoint_metadata_uses_delta(getattr(row, "metadata", None)) or bool(
        snapshots_in(values)
    )


def checkpoint_tuple_uses_delta(row: Any, channels: Channels | None = None) -> bool:
    """Whether a `CheckpointTuple` belongs to a delta thread, by all that it tells.

    A channel with a version and no stored value counts: its value is in its ancestors'
    writes. Some channels store no value by design (`EphemeralValue`, for one); pass the
    graph's `channels` to have those known, or use `ensure_checkpoint_mode_compatible`, which
    asks the saver in doubt.
    """
    if row is None:
        return False
    return shows_delta(row) or any(absent_channels(row, channels))


class Absent(NamedTuple):
    """Channels with a version and no value."""

    certain: tuple[str, ...]
    """Those that must have been written as delta channels."""
    doubtful: tuple[str, ...]
    """Those that may have been."""


def absent_channels(row: Any, channels: Channels | None = None) -> Absent:
    """The channels of a `CheckpointTuple` that have a version and no stored value.

    As LangGraph's `_delta_channels_to_replay`, a reducer channel without a value is certain
    to have been written as a delta channel. What `channels` does not name may be one, and
    so may a `LastValue`, whose annotation may have been another. Other classes are not.
    """
    values, versions = _part(row, "channel_values"), _part(row, "channel_versions")
    names = [name for name in versions if name not in values and not is_reserved(name)]
    known = channels or {}
    certain = [name for name in names if isinstance(known.get(name), _REDUCERS)]
    doubtful = [name for name in names if name not in known or type(known[name]) is LastValue]
    return Absent(tuple(certain), tuple(doubtful))


_REDUCERS = (BinaryOperatorAggregate, DeltaChannel)


def _part(row: Any, name: str) -> Mapping[str, Any]:
    checkpoint = getattr(row, "checkpoint", None)
    found = checkpoint.get(name) if isinstance(checkpoint, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def is_reserved(channel: str) -> bool:
    """Whether a channel is LangGraph's own (inputs, branches, joins), not part of the state."""
    return channel.startswith(_RESERVED) and channel != "__root__"


_RESERVED: tuple[str, ...] = ("__", "branch:", "join:", "start:")
