"""What the steps of a validation amount to, with scripted answers."""

from __future__ import annotations

from typing import Any

import pytest

from deerflow_saver._plan import drive
from deerflow_saver.staging.overlay import Reject
from deerflow_saver.staging.trials import Sighting
from deerflow_saver.staging.validation import Outcome, Verdict, judge

PASSES = Sighting(passed=2)
SHOWS = Sighting(passed=1, failed=("test_it: assert 1 == 2",))
BREAKS = Sighting(failed=("test_it: assert 1 == 2",), broken=("test_other: KeyError: 'x'",))
REJECT = Reject("error: patch failed: module.py:3", "@@ -3 +3 @@\n-old\n+new")


def fixed(remedy: str, sighting: Sighting = PASSES) -> Sighting:
    return Sighting(sighting.passed, sighting.failed, sighting.broken, remedy, "fixed-here: yes")


def verdict(**answers: Any) -> tuple[Verdict, list[str]]:
    """The verdict for scripted answers, and the steps that were asked for."""
    asked: list[str] = []

    def answer(step: str) -> Any:
        asked.append(step)
        return answers[step]

    calls = {
        "test": lambda with_diff: answer("changed" if with_diff else "bare"),
        "apply": lambda _: answer("apply"),
        "fix": lambda _: answer("fix"),
    }
    return drive(judge(), calls), asked


@pytest.mark.parametrize("remedy", ["patch", "wrapper"])
def test_validated_if_diff_and_fix_make_the_test_pass(remedy: str) -> None:
    seen, asked = verdict(bare=SHOWS, apply=None, changed=PASSES, fix=fixed(remedy))
    assert (seen.outcome, seen.fix) == (Outcome.VALIDATED, remedy)
    assert "assert 1 == 2" in seen.detail
    assert asked == ["bare", "apply", "changed", "fix"]


@pytest.mark.parametrize("remedy", ["guard", "advice", ""])
def test_validated_where_no_runtime_fix_can_make_the_test_pass(remedy: str) -> None:
    seen, _ = verdict(bare=SHOWS, apply=None, changed=PASSES, fix=fixed(remedy, SHOWS))
    assert (seen.outcome, seen.fix) == (Outcome.VALIDATED, remedy)


def test_a_fix_that_does_not_help_is_no_validation() -> None:
    seen, _ = verdict(bare=SHOWS, apply=None, changed=PASSES, fix=fixed("patch", SHOWS))
    assert seen.outcome is Outcome.FIX_FAILS
    assert "assert 1 == 2" in seen.detail
    assert "fixed-here" in seen.detail


def test_a_release_on_which_the_test_passes_needs_no_diff() -> None:
    seen, asked = verdict(bare=PASSES)
    assert seen.outcome is Outcome.FIXED_UPSTREAM
    assert asked == ["bare"]


@pytest.mark.parametrize("bare", [BREAKS, Sighting(), Sighting(passed=1, broken=("skipped",))])
def test_a_test_that_fails_otherwise_than_by_assertion_shows_nothing(bare: Sighting) -> None:
    seen, asked = verdict(bare=bare)
    assert (seen.outcome, seen.detail) == (Outcome.NOT_SHOWN, bare.told)
    assert asked == ["bare"]


def test_a_reject_is_told_with_its_hunk() -> None:
    seen, asked = verdict(bare=SHOWS, apply=REJECT)
    assert seen.outcome is Outcome.REJECT
    assert REJECT.said in seen.detail
    assert REJECT.hunks in seen.detail
    assert asked == ["bare", "apply"]


@pytest.mark.parametrize("changed", [SHOWS, BREAKS, Sighting()])
def test_a_diff_that_does_not_make_every_test_pass_still_fails(changed: Sighting) -> None:
    seen, _ = verdict(bare=SHOWS, apply=None, changed=changed)
    assert (seen.outcome, seen.detail) == (Outcome.STILL_FAILS, changed.told)


def test_only_a_right_and_a_needless_change_are_fine() -> None:
    fine = {outcome for outcome in Outcome if outcome.fine}
    assert fine == {Outcome.VALIDATED, Outcome.FIXED_UPSTREAM}
