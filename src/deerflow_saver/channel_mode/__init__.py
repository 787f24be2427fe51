"""Full or delta: how a process chooses its channel mode, marks what it writes, and keeps to it."""

from __future__ import annotations

from deerflow_saver.channel_mode.freeze import (
    DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
    CheckpointChannelMode,
    Frozen,
    freeze,
    freeze_checkpoint_channel_mode,
    freeze_checkpoint_snapshot_frequency,
    frozen,
    frozen_checkpoint_channel_mode,
    frozen_checkpoint_snapshot_frequency,
    resolve_checkpoint_channel_mode,
    resolve_checkpoint_snapshot_frequency,
    thawed,
)
from deerflow_saver.channel_mode.gate import (
    aensure_checkpoint_mode_compatible,
    ensure_checkpoint_mode_compatible,
    raise_if_checkpoint_tuple_incompatible,
    raise_if_snapshot_incompatible,
)
from deerflow_saver.channel_mode.marker import (
    CHECKPOINT_MODE_METADATA_KEY,
    INTERNAL_CHECKPOINT_MODE_KEY,
    ambient_mode_hidden,
    checkpoint_metadata_uses_delta,
    checkpoint_tuple_uses_delta,
    discard_internal_mode,
    inject_checkpoint_mode,
    state_snapshot_uses_delta,
    with_checkpoint_mode,
)
from deerflow_saver.channel_mode.settings import CheckpointSettings
from deerflow_saver.errors import (
    CheckpointModeMismatchError,
    CheckpointModeReconfigurationError,
)

__all__ = [
    "CHECKPOINT_MODE_METADATA_KEY",
    "DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY",
    "INTERNAL_CHECKPOINT_MODE_KEY",
    "CheckpointChannelMode",
    "CheckpointModeMismatchError",
    "CheckpointModeReconfigurationError",
    "CheckpointSettings",
    "Frozen",
    "aensure_checkpoint_mode_compatible",
    "ambient_mode_hidden",
    "checkpoint_metadata_uses_delta",
    "checkpoint_tuple_uses_delta",
    "discard_internal_mode",
    "ensure_checkpoint_mode_compatible",
    "freeze",
    "freeze_checkpoint_channel_mode",
    "freeze_checkpoint_snapshot_frequency",
    "frozen",
    "frozen_checkpoint_channel_mode",
    "frozen_checkpoint_snapshot_frequency",
    "inject_checkpoint_mode",
    "raise_if_checkpoint_tuple_incompatible",
    "raise_if_snapshot_incompatible",
    "resolve_checkpoint_channel_mode",
    "resolve_checkpoint_snapshot_frequency",
    "state_snapshot_uses_delta",
    "thawed",
    "with_checkpoint_mode",
]
