"""What follows from a row's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["with_derived"]


def with_derived(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with what can be derived; a zero or missing denominator leaves a field out.

    `snapshot_write_spike` is the 99th percentile of a turn's checkpoint writes over their
    median, `checkpoint_write_share` their median over the turn's, `cache_effect_ms` a cold
    read less a warm one.
    """
    found = dict(row)
    for name, above, below in (
        ("snapshot_write_spike", "checkpoint_write_p99_ms", "checkpoint_write_p50_ms"),
        ("checkpoint_write_share", "checkpoint_write_p50_ms", "run_turn_p50_ms"),
    ):
        if row.get(below) and row.get(above) is not None:
            found[name] = row[above] / row[below]
    cold, warm = row.get("state_cold_ms"), row.get("state_warm_p50_ms")
    if cold is not None and warm is not None:
        found["cache_effect_ms"] = cold - warm
    return found
