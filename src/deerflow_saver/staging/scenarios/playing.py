"""Play scenarios on one saver and say what each showed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from deerflow_saver.staging.scenarios.savers import stage
from deerflow_saver.staging.scenarios.scenario import Scenario
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["Cell", "Outcome", "played"]

Outcome = Literal["present", "absent", "impossible", "broken"]
"""`impossible`: the saver does not implement the call; `broken`: the scenario itself failed."""


class Cell(NamedTuple):
    """A scenario on a saver."""

    name: str
    saver: str
    outcome: Outcome
    evidence: str


def played(
    scenarios: Iterable[Scenario], saver: str, postgres_uri: str | None = None
) -> Iterator[Cell]:
    """The cells of those scenarios that can be played on `saver`."""
    fitting = [scenario for scenario in scenarios if saver in scenario.savers]
    if fitting:
        with stage(saver, postgres_uri) as on:
            for scenario in fitting:
                yield _cell(scenario, on)


def _cell(scenario: Scenario, on: Stage) -> Cell:
    try:
        finding = scenario.play(on)
    except NotImplementedError as error:
        return Cell(scenario.name, on.name, "impossible", f"NotImplementedError {error}".strip())
    except Exception as error:  # noqa: BLE001 - one broken scenario must not hide the others
        return Cell(scenario.name, on.name, "broken", f"{type(error).__name__}: {error}")
    outcome: Outcome = "present" if finding.present else "absent"
    return Cell(scenario.name, on.name, outcome, finding.evidence)
