"""The mode of a process: chosen once, then the same for every graph it compiles.

A graph's channel table is built for one mode, and a thread written in one is not read in the
other by accident. So the mode and the snapshot cadence are frozen at start-up, in one step,
and a second, different choice is an error that only a restart resolves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

from deerflow_saver.errors import CheckpointModeReconfigurationError, InvalidConfigError

__all__ = [
    "DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY",
    "MODES",
    "CheckpointChannelMode",
    "Frozen",
    "check_mode",
    "check_snapshot_frequency",
    "freeze",
    "freeze_checkpoint_channel_mode",
    "freeze_checkpoint_snapshot_frequency",
    "frozen",
    "frozen_checkpoint_channel_mode",
    "frozen_checkpoint_snapshot_frequency",
    "resolve_checkpoint_channel_mode",
    "resolve_checkpoint_snapshot_frequency",
    "thawed",
]

CheckpointChannelMode = Literal["full", "delta"]
MODES: tuple[CheckpointChannelMode, ...] = get_args(CheckpointChannelMode)

DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY = 10
"""Updates of a delta channel between two stored snapshots."""


class Frozen(NamedTuple):
    """What a process has settled on; a part that is not frozen yet is None."""

    mode: CheckpointChannelMode | None = None
    snapshot_frequency: int | None = None


_NOTHING = Frozen()
_lock = threading.Lock()
_frozen = _NOTHING
"""Replaced under the lock, never changed: readers need none."""


def check_mode(mode: Any) -> CheckpointChannelMode:
    """The mode, if it is one.

    Raises:
        InvalidConfigError: `mode` is neither `"full"` nor `"delta"`.

    """
    for known in MODES:
        if isinstance(mode, str) and mode == known:
            return known
    msg = f"checkpoint_channel_mode must be 'full' or 'delta', got {mode!r}"
    raise InvalidConfigError(msg)


def check_snapshot_frequency(snapshot_frequency: Any) -> int:
    """The cadence (updates per snapshot), if it is one.

    Raises:
        InvalidConfigError: it is no `int` (a `bool` is none), or not positive.

    """
    if isinstance(snapshot_frequency, bool) or not isinstance(snapshot_frequency, int):
        msg = f"snapshot frequency must be a positive int, got {snapshot_frequency!r}"
        raise InvalidConfigError(msg)
    if snapshot_frequency <= 0:
        raise InvalidConfigError("snapshot frequency must be positive")
    return snapshot_frequency


def freeze(
    mode: CheckpointChannelMode,
    snapshot_frequency: int = DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
) -> Frozen:
    """Settle mode and cadence of this process in one step: both, or neither.

    The same values again change nothing.

    Raises:
        InvalidConfigError: a value that is none.
        CheckpointModeReconfigurationError: another value is frozen already.

    """
    return _freeze(Frozen(check_mode(mode), check_snapshot_frequency(snapshot_frequency)))


def freeze_checkpoint_channel_mode(mode: CheckpointChannelMode) -> CheckpointChannelMode:
    """Settle the mode alone; errors as `freeze`."""
    checked = check_mode(mode)
    _freeze(Frozen(mode=checked))
    return checked


def freeze_checkpoint_snapshot_frequency(snapshot_frequency: int) -> int:
    """Settle the cadence alone; errors as `freeze`."""
    checked = check_snapshot_frequency(snapshot_frequency)
    _freeze(Frozen(snapshot_frequency=checked))
    return checked


def _freeze(wanted: Frozen) -> Frozen:
    global _frozen  # noqa: PLW0603 - a process has one mode
    with _lock:
        for name, old, new in zip(_NAMES, _frozen, wanted, strict=True):
            if old is not None and new is not None and old != new:
                raise _changed(name, old, new)
        mode, frequency = wanted
        _frozen = Frozen(
            _frozen.mode if mode is None else mode,
            _frozen.snapshot_frequency if frequency is None else frequency,
        )
        return _frozen


_NAMES = ("checkpoint_channel_mode", "checkpoint_delta.snapshot_frequency")


def _changed(name: str, old: object, new: object) -> CheckpointModeReconfigurationError:
    error = CheckpointModeReconfigurationError(
        f"{name} is restart-required and cannot change in a running process"
    )
    error.add_note(f"This process runs with {old!r}; {new!r} was asked for.")
    return error


def frozen() -> Frozen | None:
    """What is frozen; None if nothing is."""
    return None if _frozen == _NOTHING else _frozen


def frozen_checkpoint_channel_mode() -> CheckpointChannelMode | None:
    """The frozen mode, if there is one."""
    return _frozen.mode


def frozen_checkpoint_snapshot_frequency() -> int | None:
    """The frozen cadence, if there is one."""
    return _frozen.snapshot_frequency


def resolve_checkpoint_channel_mode(
    mode: CheckpointChannelMode | None = None,
) -> CheckpointChannelMode:
    """The mode to work in: the one given, else the frozen one, else `"full"`.

    Raises:
        InvalidConfigError: `mode` is none.
        CheckpointModeReconfigurationError: the process is frozen in the other mode.

    """
    settled = _frozen.mode
    if mode is None:
        return settled or "full"
    checked = check_mode(mode)
    if settled is not None and checked != settled:
        raise _changed(_NAMES[0], settled, checked)
    return checked


def resolve_checkpoint_snapshot_frequency(snapshot_frequency: int | None = None) -> int:
    """The cadence to build channels with: the one given, else the frozen one, else 10.

    Raises:
        InvalidConfigError: `snapshot_frequency` is no positive int.

    """
    if snapshot_frequency is not None:
        return check_snapshot_frequency(snapshot_frequency)
    return _frozen.snapshot_frequency or DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY


@contextmanager
def thawed() -> Iterator[None]:
    """For tests: begin with nothing frozen, and put back at the end what was.

    The whole process is thawed, other threads included: no code of a running application
    may use it.
    """
    global _frozen  # noqa: PLW0603 - as above
    with _lock:
        before, _frozen = _frozen, _NOTHING
    try:
        yield
    finally:
        with _lock:
            _frozen = before
