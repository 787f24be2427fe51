"""Is a staged change right? The steps, and what their answers amount to."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from deerflow_saver._plan import Plan, drive
from deerflow_saver.staging.environments import Environment
from deerflow_saver.staging.overlay import (
    Reject,
    apply_diff,
    copy_distribution,
    distribution_version,
)
from deerflow_saver.staging.staged import Staged
from deerflow_saver.staging.trials import Sighting, run_trial, try_fix

__all__ = ["Outcome", "Result", "Verdict", "judge", "validate"]


class Outcome(StrEnum):
    """What came of validating one staged change on one release."""

    VALIDATED = "validated"
    FIXED_UPSTREAM = "already-fixed-upstream"
    NOT_SHOWN = "defect-not-shown"
    REJECT = "reject"
    STILL_FAILS = "still-fails"
    FIX_FAILS = "fix-fails"

    @property
    def fine(self) -> bool:
        """Nothing to look into: the change is right, or not needed."""
        return self in {Outcome.VALIDATED, Outcome.FIXED_UPSTREAM}


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and why.

    Attributes:
        outcome: see `Outcome`.
        fix: the runtime fix that passed the test too: `"patch"` or `"wrapper"`; `"guard"` or
            `"advice"` where the remedy is of a kind that the test cannot pass; empty if there
            is none, or if it was not reached.
        detail: what was seen, for a person.

    """

    outcome: Outcome
    fix: str
    detail: str


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on one staged change and one release.

    Attributes:
        slug: the change.
        release: the langgraph version.
        distribution: the changed distribution.
        version: its version there.
        verdict: the verdict.

    """

    slug: str
    release: str
    distribution: str
    version: str
    verdict: Verdict


def judge() -> Plan[Verdict]:
    """The steps: `("test", with_diff)`, `("apply", None)`, `("fix", None)`, and their meaning."""
    bare: Sighting = yield "test", False
    if bare.passes:
        return Verdict(Outcome.FIXED_UPSTREAM, "", "the test passes on the release as it is")
    if not bare.shows:
        return Verdict(Outcome.NOT_SHOWN, "", bare.told)
    reject: Reject | None = yield "apply", None
    if reject is not None:
        return Verdict(Outcome.REJECT, "", f"{reject.said}\n{reject.hunks}".strip())
    changed: Sighting = yield "test", True
    if not changed.passes:
        return Verdict(Outcome.STILL_FAILS, "", changed.told)
    fixed: Sighting = yield "fix", None
    if fixed.fix in {"patch", "wrapper"} and not fixed.passes:
        return Verdict(Outcome.FIX_FAILS, fixed.fix, f"{fixed.told} ({fixed.evidence})")
    return Verdict(Outcome.VALIDATED, fixed.fix, f"as released: {bare.told}")


def validate(
    staged: Staged, environment: Environment, say: Callable[[str], None] = lambda _: None
) -> Result:
    """Validate one staged change in one environment, which is left as it was.

    Raises:
        StagingError: it cannot be tried there at all.

    """
    version = distribution_version(environment, staged.distribution)

    with tempfile.TemporaryDirectory(prefix="deerflow-saver-overlay-") as name:
        overlay = Path(name).resolve()

        def test(with_diff: bool) -> Sighting:  # noqa: FBT001 - a plan's argument
            say("the test on the release with the diff" if with_diff else "the test as released")
            return run_trial(staged, environment, [overlay] if with_diff else [])

        def apply(_: None) -> Reject | None:
            say("applying the diff to a copy")
            copy_distribution(environment, staged.distribution, overlay)
            return apply_diff(overlay, staged.diff)

        def fix(_: None) -> Sighting:
            say("the test with the runtime fix")
            return try_fix(staged, environment)

        verdict = drive(judge(), {"test": test, "apply": apply, "fix": fix})
    return Result(staged.slug, environment.name, staged.distribution, version, verdict)
