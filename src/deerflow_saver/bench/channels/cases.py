"""Cases of `bench channels`: the matrix, the order of modes, and the cap on full state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CACHES", "ChannelCase", "capped", "channel_matrix"]

CACHES = ("off", "memory")
FULL_FREQUENCY = 10
"""Full state has no cadence; its rows carry this one."""


@dataclass(frozen=True, slots=True)
class ChannelCase:
    """One thread in one mode.

    Attributes:
        mode: `full` or `delta`.
        backend: `memory` or `sqlite`.
        update_count: messages, one run each.
        payload_bytes: size of each message's text.
        history_cache: `off` for the raw saver, `memory` for the wrapped one.

    Raises:
        ValueError: a value is none.

    """

    mode: str
    backend: str
    update_count: int
    payload_bytes: int
    repetition: int
    seed: int
    scenario: str = "append"
    snapshot_frequency: int = FULL_FREQUENCY
    history_cache: str = "off"

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        for name, allowed in (
            ("mode", ("full", "delta")),
            ("backend", ("memory", "sqlite")),
            ("scenario", ("append",)),
            ("history_cache", CACHES),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, none of {allowed}")
        for name in ("update_count", "payload_bytes", "repetition", "snapshot_frequency"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def name(self) -> str:
        """Of its profile, before the ending."""
        return (
            f"{self.backend}-{self.mode}-freq-{self.snapshot_frequency}-updates-"
            f"{self.update_count}-payload-{self.payload_bytes}-rep-{self.repetition}"
        )

    @property
    def pair(self) -> tuple[Any, ...]:
        """What cases have in common that must end in the same state, at whatever cadence."""
        return (
            self.backend, self.scenario, self.update_count, self.payload_bytes, self.repetition,
        )  # fmt: skip

    @property
    def estimated_full_bytes(self) -> int:
        """Text that full state stores: each checkpoint holds all messages so far."""
        return self.payload_bytes * self.update_count * (self.update_count + 1) // 2

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def channel_matrix(
    modes: Sequence[str],
    backends: Sequence[str],
    updates: Sequence[int],
    payloads: Sequence[int],
    frequencies: Sequence[int],
    *,
    repetitions: int,
    seed: int,
    history_cache: str = "off",
) -> Iterator[ChannelCase]:
    """All cases. Cadences are an axis of delta alone: full runs once.

    Which mode goes first changes from one pair to the next, over repetitions too.
    """
    for repetition in range(1, repetitions + 1):
        for backend in backends:
            for payload in payloads:
                for index, count in enumerate(updates):
                    ordered = modes if (repetition + index) % 2 == 0 else tuple(reversed(modes))
                    for mode in ordered:
                        cadences = frequencies if mode == "delta" else (FULL_FREQUENCY,)
                        for frequency in cadences:
                            yield ChannelCase(
                                mode, backend, count, payload, repetition, seed,
                                snapshot_frequency=frequency, history_cache=history_cache,
                            )  # fmt: skip


def capped(
    cases: Sequence[ChannelCase], limit: int | None
) -> tuple[list[ChannelCase], list[ChannelCase]]:
    """The cases to run, and those left out.

    A full case over the cap takes every case of its pair along, at all cadences: what it
    would be compared with tells nothing alone. Without full cases nothing is left out.
    """
    over = {
        case.pair
        for case in cases
        if limit is not None and case.mode == "full" and case.estimated_full_bytes > limit
    }
    kept = [case for case in cases if case.pair not in over]
    return kept, [case for case in cases if case.pair in over]
