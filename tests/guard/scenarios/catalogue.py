"""All scenarios: importing this module registers them."""

from __future__ import annotations

from guard.scenarios import (
    agents,
    cancelling,
    failures,
    flows,
    forks,
    functional,
    interrupts,
    meetings,
    raw,
    raw_forks,
    subgraphs,
    turns,
    updates,
)
from guard.scenarios.registry import SCENARIOS, Scenario

__all__ = ["ALL", "of"]

ALL: tuple[Scenario, ...] = tuple(SCENARIOS.values())
MODULES = (
    agents, cancelling, failures, flows, forks, functional, interrupts, meetings, raw, raw_forks,
    subgraphs, turns, updates,
)  # fmt: skip


def of(label: str) -> tuple[Scenario, ...]:
    """The scenarios with a label."""
    return tuple(scenario for scenario in ALL if scenario.label == label)
