"""`CachedHistorySaver(..., fixes=...)`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver, InvalidConfigError, fixes
from deerflow_saver.fixes import DEFECTS, Patch, Presence
from deerflow_saver.fixes._choice import needed
from support.savers import Storage

pytestmark = pytest.mark.usefixtures("as_released")

ALL = frozenset(defect.slug for defect in DEFECTS)


def test_by_default_a_wrapper_applies_what_its_saver_and_guard_need() -> None:
    CachedHistorySaver(InMemorySaver())
    assert "overwrite-first-write" in fixes.applied()
    assert "left-checkpoint-writes" not in fixes.applied()


@pytest.mark.parametrize("guard", ["observe", "off"])
def test_without_refusals_late_answers_are_fixed_too(guard: Any) -> None:
    CachedHistorySaver(InMemorySaver(), guard=guard)
    (row,) = fixes.status(["left-checkpoint-writes"])
    assert row.presence is not Presence.PRESENT  # it is mended, absent, or the release cannot be


def test_off_patches_nothing() -> None:
    CachedHistorySaver(InMemorySaver(), fixes="off")
    assert fixes.applied() == frozenset()


def test_off_leaves_what_others_applied() -> None:
    fixes.apply(["overwrite-first-write"])
    CachedHistorySaver(InMemorySaver(), fixes="off")
    assert fixes.applied() == {"overwrite-first-write"}


def test_slugs_are_applied_and_no_others() -> None:
    CachedHistorySaver(InMemorySaver(), fixes=(slug for slug in ["overwrite-first-write"]))
    assert fixes.applied() == {"overwrite-first-write"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("on", "'auto', 'off' or an iterable of slugs; got 'on'"),
        (None, "got None"),
        (7, "got 7"),
        (["overwrite-first-write", "nonsense"], "'nonsense'; known are .*overwrite-first-write"),
        ([3], "unknown fix: 3"),
        ([[]], "unhashable"),
    ],
)
def test_anything_else_is_refused(given: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfigError, match=complaint):
        CachedHistorySaver(InMemorySaver(), fixes=given)
    assert fixes.applied() == frozenset()


def test_a_wrong_environment_switch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "nonsense")
    with pytest.raises(InvalidConfigError, match="DEERFLOW_SAVER_FIXES"):
        CachedHistorySaver(InMemorySaver())


def test_the_environment_switches_a_wrapper_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "off")
    CachedHistorySaver(InMemorySaver())
    assert fixes.applied() == frozenset()


def test_copies_and_clones_apply_nothing_again() -> None:
    saver = CachedHistorySaver(InMemorySaver(), fixes=["overwrite-first-write"])
    fixes.revert()
    copies = [copy.copy(saver), copy.deepcopy(saver), saver.with_allowlist([("a", "B")])]
    assert fixes.applied() == frozenset()
    assert {made._self_core.shared.fixes for made in copies} == {
        frozenset({"overwrite-first-write"})
    }


def test_an_explicit_revert_is_undone_by_the_next_wrapper_that_asks() -> None:
    CachedHistorySaver(InMemorySaver(), fixes=["overwrite-first-write"])
    fixes.revert()
    CachedHistorySaver(InMemorySaver(), fixes=["overwrite-first-write"])
    assert fixes.applied() == {"overwrite-first-write"}


class OfTheUser(InMemorySaver):
    pass


@pytest.mark.parametrize("guard", ["refuse", "refuse-all", "observe", "off"])
def test_a_patch_is_needed_by_the_savers_and_guards_it_is_for(guard: str) -> None:
    found = set(needed(DEFECTS, ALL, OfTheUser(), guard))
    assert "memory-history-folding" in found
    assert ("left-checkpoint-writes" in found) is (guard in {"observe", "off"})
    assert all(isinstance(d.remedy, Patch) for d in DEFECTS if d.slug in found)
    assert needed(DEFECTS, frozenset(), OfTheUser(), guard) == []


def test_a_patch_of_the_memory_saver_is_not_for_others(storage: Storage) -> None:
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite")
    with sqlite.SqliteSaver.from_conn_string(":memory:") as saver:
        assert "memory-history-folding" not in needed(DEFECTS, ALL, saver, "refuse")
        assert "overwrite-first-write" in needed(DEFECTS, ALL, saver, "refuse")
