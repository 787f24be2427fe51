"""What a guarded run must have in common with the unguarded one, and where it must differ."""

from __future__ import annotations

from typing import Any

from deerflow_saver import WriteSlotTakenError
from guard.audit import written
from guard.cells import DELTA, Cell, Outcome, play
from guard.storage import Memory
from support.upstream import (
    keeps_every_update,
    reloads_what_ran,
    stores_checkpoints_first,
    without_order,
)

__all__ = ["assert_forks_as_without_a_guard", "assert_right", "assert_same"]

_CHANCES = 30
_MAY_ALL_BE_REFUSED = "sub_true_send_parallel"
"""One run whose parallel parts get in each other's way, whenever it is run."""
_MUST_PASS = "async_cancel_immediate_reinvoke"
"""The saves of the cancelled run are awaited, so nothing is left to refuse."""


def assert_right(cell: Cell, control: Outcome, guarded: Outcome) -> None:
    """Compare a run under the policy `refuse` with the same run without a guard."""
    if cell.scenario.label == "L":
        assert control.error is None
        assert not control.forked, "the scenario is no legal flow"
        assert_same(control, guarded)
    elif cell.scenario.label == "F":
        assert_fork_refused(cell, control, guarded)
    else:
        assert_meeting_in_line(cell, control, guarded)


def told(outcome: Outcome) -> Any:
    """What two runs of one flow have in common: all of it, or all but its order."""
    found = (outcome.trace, outcome.values)
    return found if reloads_what_ran() else without_order(found)


def told_alike(control: Outcome, guarded: Outcome) -> bool:
    """Whether the guarded run ended as the unguarded one, or as that may end by chance."""
    if told(guarded) == told(control):
        return True
    # Releases that do not reload what ran lose and revive writes by the ids of their tasks
    again = () if reloads_what_ran() else range(_CHANCES)
    return any(told(play(control.cell, Memory())) == told(guarded) for _ in again)


def assert_same(control: Outcome, guarded: Outcome) -> None:
    """Nothing refused, the same results, the same values at the end."""
    assert guarded.refusals == []
    if guarded.error != control.error and not keeps_every_update():
        # What such a release would have lost without a word
        assert guarded.error is not None
        assert guarded.error.startswith(WriteSlotTakenError.__name__)
        assert not guarded.forked
        return
    assert guarded.error == control.error
    assert told_alike(control, guarded)
    assert guarded.findings == control.findings or not guarded.forked


def assert_fork_refused(cell: Cell, control: Outcome, guarded: Outcome) -> None:
    """What forks is refused and stores nothing; what does not is no fork and passes."""
    if cell.kind == "full":
        assert guarded.refusals == []
        assert_forks_as_without_a_guard(control, guarded)
    elif control.forked:
        assert guarded.refusals, "a fork was missed"
        assert guarded.error is None
        assert_nothing_stored(cell, guarded)
        assert_in_line(guarded)
        assert guarded.went_on is None
    else:
        assert_same(control, guarded)


def assert_nothing_stored(cell: Cell, guarded: Outcome, *, strict: bool = False) -> None:
    """The database is what it was before the fork.

    A release that stores writes before their checkpoint may leave those of one that was then
    refused: of a checkpoint that there is not, newer than all there are.

    Late writes of other channels than delta channels pass where the guard is not strict: they
    change no delta channel, and legal runs have them too.
    """
    assert guarded.before is not None
    assert guarded.after is not None
    rows = written(guarded.before, guarded.after)
    if not stores_checkpoints_first():
        stored = {row[:3] for row in guarded.after["checkpoints"]}
        newest = max(cid for _, _, cid in stored)
        rows = [r for r in rows if r[0] != "writes" or r[1:4] in stored or r[3] < newest]
    if not strict:
        delta = DELTA[cell.kind]
        rows = [row for row in rows if row[0] != "writes" or row[6] in delta]
    assert rows == []


def assert_in_line(guarded: Outcome) -> None:
    """One line of checkpoints, whose past has not changed, and delta channels that are right."""
    assert not guarded.findings
    assert guarded.changed == []
    if reloads_what_ran():  # else what the head holds may be wrong without any fork
        assert guarded.disagreeing == []


def assert_forks_as_without_a_guard(control: Outcome, guarded: Outcome) -> None:
    """The fork was stored."""
    assert guarded.error == control.error
    assert bool(guarded.findings) == bool(control.findings)
    assert told_alike(control, guarded)


def assert_meeting_in_line(cell: Cell, control: Outcome, guarded: Outcome) -> None:
    """Runs that met leave a line; whoever was not refused has landed whole."""
    assert guarded.error is None
    if cell.kind == "full":
        assert guarded.refusals == []
        return
    assert_in_line(guarded)
    if control.forked:
        assert guarded.refusals, "both runs were let through"
    if cell.scenario.name == _MUST_PASS:
        assert guarded.refusals == []
    elif cell.scenario.name != _MAY_ALL_BE_REFUSED:
        assert guarded.returned >= 1, "nobody was let through"
        assert guarded.went_on is None
    held = guarded.values["thread"][0]
    for text in guarded.accepted:
        for channel in ("log", "ref"):
            assert held[channel].count(text) == 1, f"the turn {text!r} did not land"
