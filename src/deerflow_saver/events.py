"""What cache and guard tell about themselves: frozen events, and the counters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Literal

__all__ = ["CacheInfo", "GuardEvent", "HistoryEvent", "OnEvent", "emit"]

logger = logging.getLogger("deerflow_saver")

Outcome = Literal["hit", "composed", "walk", "bypass"]
SeedKind = Literal["snapshot", "legacy_plain", "root", "missing"]


@dataclass(frozen=True, slots=True, init=False)
class HistoryEvent:
    """One read of a delta history.

    `outcome` is `"hit"` (no call to the wrapped saver), `"composed"` (caught up with a
    few `get_tuple` calls), `"walk"` (the wrapped saver walked), or `"bypass"` (the cache
    was not consulted: no checkpoint id, cache disabled). `seed_kind`, `replay_depth`
    (writes to replay) and `past_bound` use the vocabulary of LangGraph's own platform
    metrics: the history starts from a `"snapshot"`, from a value that was stored while the
    channel was an ordinary one (`"legacy_plain"`), or from nothing. That is `"missing"`
    where a row on the line was looked for and not found, and otherwise `"root"`.
    """

    outcome: Outcome
    channel: str
    seed_kind: SeedKind
    replay_depth: int
    calls: int
    """Calls this read made to the wrapped saver."""
    seconds: float
    """How long the whole read took; the same for each of its channels."""
    past_bound: bool = False
    """The wrapped saver walked, from a checkpoint whose metadata counts more supersteps since
    the channel's last snapshot than LangGraph's bound (`DELTA_MAX_SUPERSTEPS_SINCE_SNAPSHOT`)."""

    def __init__(
        self,
        outcome: Outcome,
        channel: str,
        seed_kind: SeedKind,
        replay_depth: int,
        calls: int,
        seconds: float,
        past_bound: bool = False,  # noqa: FBT001, FBT002 - as the field's default
    ) -> None:
        # One is made for every channel of every read, and the generated method takes twice as long
        _set_outcome(self, outcome)
        _set_channel(self, channel)
        _set_seed_kind(self, seed_kind)
        _set_replay_depth(self, replay_depth)
        _set_calls(self, calls)
        _set_seconds(self, seconds)
        _set_past_bound(self, past_bound)


(
    _set_outcome,
    _set_channel,
    _set_seed_kind,
    _set_replay_depth,
    _set_calls,
    _set_seconds,
    _set_past_bound,
) = (getattr(HistoryEvent, field.name).__set__ for field in fields(HistoryEvent))


@dataclass(frozen=True, slots=True)
class GuardEvent:
    """One write that would leave the line.

    `outcome` is `"refused"`, `"observed"` (the policy only watches), or `"allowed"` (an
    administrator's override, whose words `note` holds). The other fields are those of
    `RefusedWriteError`.
    """

    outcome: Literal["refused", "observed", "allowed"]
    operation: str
    reason: str
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    head_id: str | None
    channels: tuple[str, ...]
    note: str = ""
    behind: bool = False


OnEvent = Callable[[HistoryEvent | GuardEvent], None]


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Counters of one wrapper family (a wrapper and its clones) and the size of its cache.

    `hits` counts reads answered without calling the wrapped saver; `misses` all others
    that consulted the cache; of those, `composed` caught up with `fetches` calls of
    `get_tuple` and `walks` asked the wrapped saver for the history. `learned` counts the
    checkpoints whose own writes were taken from what passed through. `shared` counts the
    reads in which records of other workers took part, and `outages` how often their store
    stopped answering. `bytes` and
    `entries` (histories of one thread and namespace) describe the cache as a whole.
    `errors` counts failures inside the cache, each of which ended in the wrapped saver's
    answer. `refused` counts writes the guard refused, `observed` those it let through
    because of its policy or an override.
    """

    hits: int = 0
    misses: int = 0
    composed: int = 0
    walks: int = 0
    fetches: int = 0
    learned: int = 0
    forgets: int = 0
    bypasses: int = 0
    errors: int = 0
    refused: int = 0
    observed: int = 0
    shared: int = 0
    outages: int = 0
    evictions: int = 0
    bytes: int = 0
    max_bytes: int = 0
    entries: int = 0

    @property
    def hit_ratio(self) -> float:
        """Share of all reads, bypasses among them, that called nobody; 0.0 before the first."""
        reads = self.hits + self.misses + self.bypasses
        return self.hits / reads if reads else 0.0

    def as_dict(self) -> dict[str, int]:
        """The counters as a plain dict, for logs and JSON."""
        return asdict(self)


def emit(hook: OnEvent | None, event: HistoryEvent | GuardEvent) -> None:
    """Hand `event` to `hook`; a hook that raises is logged and otherwise ignored."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        logger.exception("the on_event hook raised; the call it reported on is unaffected")
