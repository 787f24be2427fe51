"""Cases of `bench channels --production`: whole conversations, read over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deerflow_saver.bench.channels.cases import CACHES

__all__ = ["WARMUP_TURNS", "ProductionCase", "production_matrix"]

WARMUP_TURNS = 2
_LONGEST_PAGE = 100
"""What the router gives at most."""


@dataclass(frozen=True, slots=True)
class ProductionCase:
    """One conversation in one mode.

    Raises:
        ValueError: the turns end within the warm-up, or a cadence is given to full mode or
            missing in delta mode.

    """

    mode: str
    turns: int
    payload_bytes: int
    repetition: int
    seed: int
    history_limits: tuple[int, ...]
    read_repetitions: int
    snapshot_frequency: int | None = None
    history_cache: str = "memory"

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.mode not in {"full", "delta"} or self.history_cache not in CACHES:
            raise ValueError(f"{self.mode}, {self.history_cache}: no such mode or cache")
        if self.turns <= WARMUP_TURNS:
            raise ValueError(f"turns must exceed the {WARMUP_TURNS}-turn warm-up")
        if self.mode == "full" and self.snapshot_frequency is not None:
            raise ValueError("snapshot_frequency is a delta-only axis")
        if self.mode == "delta" and (self.snapshot_frequency or 0) < 1:
            raise ValueError("delta mode needs a positive snapshot_frequency")

    @property
    def name(self) -> str:
        """Of its profile, before the ending."""
        return (
            f"production-{self.mode}-turns-{self.turns}-payload-{self.payload_bytes}-freq-"
            f"{self.snapshot_frequency}-rep-{self.repetition}"
        )

    @property
    def pair(self) -> tuple[Any, ...]:
        """What cases have in common that must say the same over HTTP, at whatever cadence."""
        return self.turns, self.payload_bytes, self.repetition

    @property
    def effective_limits(self) -> tuple[int, ...]:
        """Sizes of pages that can be had, each once."""
        return tuple(dict.fromkeys(min(limit, _LONGEST_PAGE) for limit in self.history_limits))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def production_matrix(
    modes: Sequence[str],
    turns: Sequence[int],
    payloads: Sequence[int],
    frequencies: Sequence[int],
    *,
    repetitions: int,
    **fixed: Any,
) -> Iterator[ProductionCase]:
    """All cases; which mode goes first changes from each group to the next, over repetitions too.

    Args:
        modes: `full`, `delta`.
        turns: lengths of the conversations.
        payloads: sizes of the messages.
        frequencies: cadences of delta mode.
        repetitions: how often each case is measured.
        fixed: further fields of every case.

    """
    group = 0
    for repetition in range(1, repetitions + 1):
        for payload in payloads:
            for length in turns:
                for mode in modes if group % 2 == 0 else tuple(reversed(modes)):
                    for frequency in frequencies if mode == "delta" else (None,):
                        yield ProductionCase(
                            mode, length, payload, repetition,
                            snapshot_frequency=frequency, **fixed,
                        )  # fmt: skip
                group += 1
