"""What the guard is asked to do, and how it tells a delta namespace from a full one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, get_args

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import is_mapping
from deerflow_saver.channel_mode.marker import (
    CHECKPOINT_MODE_METADATA_KEY,
    COUNTERS_METADATA_KEY,
    DELTA_CHANNELS_METADATA_KEY,
    OVERRIDE_KEY,
    snapshots_in,
)
from deerflow_saver.errors import InvalidConfigError

__all__ = [
    "ALLOW_KEY", "MARKER", "POLICIES", "Policy", "Signal", "allow_non_head_writes", "allowed",
    "check_policy", "may_be_delta", "signal_of", "without_plain",
]  # fmt: skip

Policy = Literal["refuse", "refuse-all", "observe", "off"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

MARKER = DELTA_CHANNELS_METADATA_KEY
"""Metadata key: the delta channels of a namespace, handed down from parent to child."""
ALLOW_KEY = OVERRIDE_KEY
"""Config key of the override for one call or run."""

_EXIT_ANCHOR_STEP = -2
_allowing: ContextVar[str | None] = ContextVar("deerflow_allow_non_head_writes", default=None)


class Signal:
    """What a checkpoint tells about its namespace's channels."""

    __slots__ = ("channels", "counters", "marked", "vague")

    def __init__(
        self, channels: Iterable[str], *, marked: bool, vague: bool, counters: Any = None
    ) -> None:
        """See the attributes."""
        self.channels = frozenset(channels)
        """Names of delta channels."""
        self.marked = marked
        """Whether the guard stamped it, so that the names are all there are."""
        self.vague = vague
        """Delta, but the names are not told."""
        self.counters: Mapping[str, Any] = counters if is_mapping(counters) else {}
        """Per channel the updates and the supersteps since its snapshot."""

    def counted_as(self, other: Signal) -> frozenset[str]:
        """Channels that both have counted alike."""
        return frozenset(
            name
            for name, counted in self.counters.items()
            if name in other.counters and list(counted) == list(other.counters[name])
        )

    @property
    def delta(self) -> bool:
        """Whether the namespace is known to be delta by this."""
        return bool(self.channels) or self.vague


def signal_of(metadata: Any, values: Any = None) -> Signal:
    """The signal in a checkpoint's metadata and, where they are at hand, its values.

    Exit durability begins a thread with an anchor (step -2) that names no channel; a
    supervisor may mark a thread's mode; everything else LangGraph puts into a delta
    namespace counts its channels or holds a snapshot of them.
    """
    if not is_mapping(metadata):
        return Signal((), marked=False, vague=False)
    marker, counters = metadata.get(MARKER), metadata.get(COUNTERS_METADATA_KEY)
    marked = isinstance(marker, list | tuple)
    names = set(counters or ())
    if isinstance(marker, list | tuple):
        names.update(name for name in marker if isinstance(name, str))
    names |= snapshots_in(values)
    vague = not names and not marked
    vague = vague and (
        metadata.get("step") == _EXIT_ANCHOR_STEP
        or metadata.get(CHECKPOINT_MODE_METADATA_KEY) == "delta"
    )
    return Signal(names, marked=marked, vague=vague, counters=counters)


def without_plain(names: frozenset[str], values: Any) -> frozenset[str]:
    """Without channels a checkpoint stores in full: they are no delta channels any more."""
    if not is_mapping(values) or names.isdisjoint(values):
        return names
    return names - {name for name, v in values.items() if not isinstance(v, _DeltaSnapshot)}


def may_be_delta(channel: str) -> bool:
    """Whether a channel could be a delta channel as far as its name tells."""
    if channel == "__root__":
        return True
    return not channel.startswith(("__", "branch:"))


@contextmanager
def allow_non_head_writes(reason: str) -> Iterator[None]:
    """Let writes in this block through whatever they fork; for repairs by an administrator.

    The writes are reported all the same, with `reason`. The block covers what it calls,
    tasks and LangGraph's own threads included.
    """
    if not reason or not isinstance(reason, str):
        msg = "allow_non_head_writes needs a reason that says who allows it and why"
        raise InvalidConfigError(msg)
    token = _allowing.set(reason)
    try:
        yield
    finally:
        _allowing.reset(token)


def allowed(names: Mapping[str, Any]) -> str | None:
    """Why this call may fork; None if nobody allowed it. `names` is the call's configurable."""
    given = names.get(ALLOW_KEY)
    if given:
        return given if isinstance(given, str) else "config"
    return _allowing.get()


def check_policy(policy: Any, strict: Any) -> None:
    """Refuse a policy that does not exist.

    Raises:
        InvalidConfigError: `policy` is none of `POLICIES`, or `strict` is no bool, or there is
            no guard to be strict.

    """
    if policy not in POLICIES:
        msg = f"guard must be one of {', '.join(POLICIES)}; got {policy!r}"
        raise InvalidConfigError(msg)
    if not isinstance(strict, bool):
        msg = f"strict must be a bool, got {type(strict).__name__}"
        raise InvalidConfigError(msg)
    if strict and policy == "off":
        msg = 'strict=True needs a guard: guard="off" refuses nothing'
        raise InvalidConfigError(msg)
