"""All scenarios, in the order of the matrix."""

from __future__ import annotations

from deerflow_saver.staging.scenarios import (
    deletions,
    failures,
    forks,
    messages,
    migrations,
    orders,
    overwrites,
    pauses,
    resumes,
    subgraphs,
    updates,
    walks,
    writers,
)
from deerflow_saver.staging.scenarios.scenario import Scenario

__all__ = ["ALL"]

ALL: tuple[Scenario, ...] = tuple(
    scenario
    for module in (
        forks,
        orders,
        walks,
        migrations,
        failures,
        subgraphs,
        updates,
        overwrites,
        messages,
        pauses,
        resumes,
        writers,
        deletions,
    )
    for scenario in module.SCENARIOS
)
