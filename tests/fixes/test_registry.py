"""Applying, reverting, disabling: with made-up defects of a made-up module."""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any

import pytest

from deerflow_saver.fixes import Advice, Defect, Finding, Presence
from deerflow_saver.fixes._registry import SWITCH, Registry
from deerflow_saver.fixes._sites import Site, patch

MODULE = "deerflow_saver_made_up"


class Base:
    def add(self, one: int, other: int) -> int:
        return one - other

    def twice(self, number: int) -> int:
        return number * 2


class Derived(Base):
    pass


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module: Any = types.ModuleType(MODULE)
    module.Base = type("Base", (), dict(vars(Base)))
    module.Derived = type("Derived", (module.Base,), {})
    monkeypatch.setitem(sys.modules, MODULE, module)
    return module  # type: ignore[no-any-return]


def mend(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> int:
    return int(sum(args))


def worsen(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> int:
    return -99


def probe() -> Finding:
    seen = sys.modules[MODULE].Base().add(1, 2)  # type: ignore[attr-defined]
    return Finding(seen != 3, f"1 + 2 = {seen}")


def defect(slug: str = "wrong-sum", *sites: Site, **changes: Any) -> Defect:
    given = sites or (Site(MODULE, "Base.add", mend, takes=("one", "other")),)
    values: dict[str, Any] = {
        "symptom": "a sum is wrong",
        "upstream": (),
        "distribution": "made-up",
        "probe": probe,
        "remedy": patch(*given, text="add by hand"),
        "severity": "corrupts",
    }
    return Defect(slug, **{**values, **changes})


def presence(rows: Any) -> list[Presence]:
    return [row.presence for row in rows]


def test_apply_mends_what_is_broken_and_revert_restores_the_very_function(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    assert presence(registry.status()) == [Presence.PRESENT]
    assert presence(registry.apply()) == [Presence.FIXED]
    assert made_up.Base().add(1, 2) == 3
    assert presence(registry.revert()) == [Presence.REVERTED]
    assert vars(made_up.Base)["add"] is original
    assert made_up.Base().add(1, 2) == -1


def test_applying_twice_wraps_once(made_up: Any) -> None:
    registry = Registry((defect(),))
    registry.apply()
    patched = vars(made_up.Base)["add"]
    assert presence(registry.apply()) == [Presence.FIXED]
    assert vars(made_up.Base)["add"] is patched


def test_what_is_not_broken_is_left_alone(made_up: Any) -> None:
    made_up.Base.add = lambda self, one, other: one + other
    original = vars(made_up.Base)["add"]
    registry = Registry((defect(),))
    assert presence(registry.apply()) == [Presence.ABSENT]
    assert vars(made_up.Base)["add"] is original


def test_a_patch_that_does_not_help_is_taken_back(made_up: Any) -> None:
    original = vars(made_up.Base)["add"]
    registry = Registry((defect("worse", Site(MODULE, "Base.add", worsen)),))
    (row,) = registry.apply()
    assert row.presence is Presence.FAILED
    assert "did not help" in row.evidence
    assert "-99" in row.evidence
    assert vars(made_up.Base)["add"] is original


@pytest.mark.parametrize(
    ("site", "complaint"),
    [
        pytest.param(Site("no.such.module", "x", mend), "no.such.module", id="module"),
        pytest.param(Site(MODULE, "Base.subtract", mend), "no deerflow", id="attribute"),
        pytest.param(Site(MODULE, "Base.add", mend, takes=("third",)), "third", id="parameter"),
    ],
)
def test_a_release_without_what_is_hooked_is_left_as_it_is(
    made_up: Any, site: Site, complaint: str
) -> None:
    original = vars(made_up.Base)["add"]
    registry = Registry((defect("gone", Site(MODULE, "Base.add", mend), site),))
    (row,) = registry.apply()
    assert row.presence is Presence.FAILED
    assert complaint in row.evidence
    assert row.advice == "add by hand"
    assert vars(made_up.Base)["add"] is original


def test_a_shadow_on_a_derived_class_is_removed_again(made_up: Any) -> None:
    registry = Registry((defect("inherited", Site(MODULE, "Derived.add", mend)),))
    registry.defects[0].remedy.apply()  # type: ignore[union-attr]
    assert "add" in vars(made_up.Derived)
    registry.defects[0].remedy.revert()  # type: ignore[union-attr]
    assert "add" not in vars(made_up.Derived)


def test_two_patches_of_one_function_revert_in_any_order(made_up: Any) -> None:
    original = vars(made_up.Base)["twice"]

    def half() -> Finding:
        return Finding(made_up.Base().twice(2) % 3 != 0, f"{made_up.Base().twice(2)}")

    def third() -> Finding:
        return Finding(made_up.Base().twice(2) % 5 != 0, f"{made_up.Base().twice(2)}")

    def times(factor: int) -> Any:
        return lambda wrapped, instance, args, kwargs: factor * wrapped(*args, **kwargs)

    registry = Registry(
        (
            defect("three", Site(MODULE, "Base.twice", times(3)), probe=half),
            defect("five", Site(MODULE, "Base.twice", times(5)), probe=third),
        )
    )
    registry.apply()
    assert made_up.Base().twice(2) == 60
    registry.revert(["three"])
    assert made_up.Base().twice(2) == 20
    registry.revert(["five"])
    assert vars(made_up.Base)["twice"] is original


def test_somebody_elses_wrapper_on_top_is_left_and_told(made_up: Any) -> None:
    registry = Registry((defect(),))
    registry.apply()
    ours = made_up.Base.add

    @functools.wraps(ours)
    def traced(self: Any, one: int, other: int) -> int:
        return ours(self, one, other) + 100  # type: ignore[no-any-return]

    made_up.Base.add = traced
    (row,) = registry.revert()
    assert row.presence is Presence.FAILED
    assert "test_registry.py" in row.evidence
    assert vars(made_up.Base)["add"] is traced
    assert made_up.Base().add(1, 2) == 99, "the wrapper beneath passes calls on"


def test_a_wrapper_that_could_not_be_taken_out_is_used_again(made_up: Any) -> None:
    registry = Registry((defect(),))
    registry.apply()
    ours = vars(made_up.Base)["add"]

    @functools.wraps(ours)
    def traced(self: Any, one: int, other: int) -> int:
        return ours(self, one, other)  # type: ignore[no-any-return]

    made_up.Base.add = traced
    registry.revert()
    assert made_up.Base().add(1, 2) == -1
    assert presence(registry.apply()) == [Presence.FIXED]
    assert vars(made_up.Base)["add"] is traced
    assert made_up.Base().add(1, 2) == 3


def test_what_could_not_be_reverted_is_once_the_other_wrapper_is_gone(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    registry.apply()
    ours = vars(made_up.Base)["add"]
    made_up.Base.add = functools.wraps(ours)(lambda self, *args: ours(self, *args) + 0)
    assert presence(registry.revert()) == [Presence.FAILED]
    made_up.Base.add = ours
    assert presence(registry.revert())[0] is not Presence.FAILED
    assert vars(made_up.Base)["add"] is original


def test_a_revert_forgets_that_a_patch_did_not_help(made_up: Any) -> None:
    registry = Registry((defect("worse", Site(MODULE, "Base.add", worsen)),))
    registry.apply()
    assert presence(registry.status()) == [Presence.FAILED]
    assert presence(registry.revert()) == [Presence.PRESENT]


def test_a_patch_that_somebody_replaced_shows_as_failed(made_up: Any) -> None:
    registry = Registry((defect(),))
    registry.apply()
    made_up.Base.add = vars(Base)["add"]
    (row,) = registry.status()
    assert row.presence is Presence.FAILED
    assert "lost its effect" in row.evidence


def test_disabled_reverts_for_a_block_and_applies_again(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    registry.apply()
    with registry.disabled("wrong-sum"):
        assert vars(made_up.Base)["add"] is original
        assert "disabled" in registry.status()[0].evidence
    assert made_up.Base().add(1, 2) == 3


def test_what_was_not_applied_is_not_after_a_disabled_block(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    with registry.disabled():
        pass
    assert vars(made_up.Base)["add"] is original


def test_a_fix_asked_for_in_a_disabled_block_waits_for_its_end(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    with registry.disabled():
        assert presence(registry.apply()) == [Presence.PRESENT]
        registry.ensure(["wrong-sum"])
        assert vars(made_up.Base)["add"] is original
    assert made_up.Base().add(1, 2) == 3


def test_disabled_blocks_may_overlap(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    registry.apply()
    first, second = registry.disabled(), registry.disabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert vars(made_up.Base)["add"] is original
    second.__exit__(None, None, None)
    assert made_up.Base().add(1, 2) == 3


def test_a_revert_in_a_disabled_block_stays(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    registry.apply()
    with registry.disabled():
        registry.revert()
    assert vars(made_up.Base)["add"] is original


def test_ensure_probes_only_once(made_up: Any) -> None:
    looks = []

    def counted() -> Finding:
        looks.append(1)
        return probe()

    registry = Registry((defect(probe=counted),))
    registry.ensure(["wrong-sum"])
    tried = len(looks)
    registry.ensure(["wrong-sum"])
    assert (tried, len(looks)) == (2, 2)
    assert registry.applied() == {"wrong-sum"}
    registry.revert()
    registry.ensure(["wrong-sum"])
    assert made_up.Base().add(1, 2) == 3


@pytest.mark.parametrize("names", [["wrong-sum", "nonsense"], "nonsense"])
@pytest.mark.parametrize("method", ["apply", "revert", "status", "selected"])
def test_unknown_names_are_refused_naming_the_known(method: str, names: Any) -> None:
    registry = Registry((defect(), defect("other-sum")))
    with pytest.raises(ValueError, match=r"'nonsense'.*other-sum, wrong-sum"):
        getattr(registry, method)(names)


def test_one_slug_may_be_given_as_it_is(made_up: Any) -> None:
    assert presence(Registry((defect(), defect("other"))).apply("wrong-sum")) == [Presence.FIXED]


def test_slugs_may_come_from_an_iterator(made_up: Any) -> None:
    registry = Registry((defect(), defect("other")))
    assert presence(registry.apply(iter(["wrong-sum"]))) == [Presence.FIXED]
    assert registry.applied() == {"wrong-sum"}


def test_a_patch_that_breaks_in_an_unforeseen_way_is_a_row(made_up: Any) -> None:
    made_up.Base.add = property(lambda self: lambda *args: -1)
    (row,) = Registry((defect(),)).apply()
    assert row.presence is Presence.FAILED
    assert "cannot be patched" in row.evidence


@pytest.mark.parametrize(
    ("switch", "applied"),
    [("off", False), ("other", False), ("wrong-sum", True), ("other, wrong-sum", True), ("", True)],
)
def test_the_environment_switch_is_honoured(
    made_up: Any, monkeypatch: pytest.MonkeyPatch, switch: str, applied: bool
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    registry = Registry((defect(), defect("other", probe=lambda: Finding(False, ""))))
    row = registry.apply()[0]
    assert (row.presence is Presence.FIXED) is applied
    assert applied or SWITCH in row.evidence


def test_an_environment_switch_with_an_unknown_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "nonsense")
    with pytest.raises(ValueError, match=f"{SWITCH}.*'nonsense'.*wrong-sum"):
        Registry((defect(),)).apply()


def test_a_defect_without_a_patch_is_only_reported(made_up: Any) -> None:
    registry = Registry((defect(remedy=Advice("add by hand")),))
    (row,) = registry.apply()
    assert (row.presence, row.remedy, row.advice) == (Presence.PRESENT, "advice", "add by hand")


def failing() -> Finding:
    raise RuntimeError("what a future release does")


def absent() -> Finding:
    raise ModuleNotFoundError("no module named 'made_up'")


@pytest.mark.parametrize(
    ("look", "expected", "evidence"),
    [
        pytest.param(failing, Presence.FAILED, "future release", id="fails"),
        pytest.param(absent, Presence.UNKNOWN, "made_up", id="not installed"),
    ],
)
def test_a_probe_that_cannot_look_is_a_row(look: Any, expected: Presence, evidence: str) -> None:
    for row in (
        *Registry((defect(probe=look),)).apply(),
        *Registry((defect(probe=look),)).status(),
    ):
        assert row.presence is expected
        assert evidence in row.evidence


def test_threads_that_apply_and_revert_at_once_leave_one_state(made_up: Any) -> None:
    registry, original = Registry((defect(),)), vars(made_up.Base)["add"]
    start, wrong = threading.Barrier(4), []

    def work(number: int) -> None:
        start.wait()
        for _ in range(50):
            rows = registry.apply() if number % 2 else registry.revert()
            wrong.extend(row for row in rows if row.presence is Presence.FAILED)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    registry.revert()
    assert vars(made_up.Base)["add"] is original


@pytest.fixture(autouse=True)
def _no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)


def test_applied_again_over_somebody_elses_function_a_patch_runs_once(made_up: Any) -> None:
    calls = []

    def count(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> int:
        calls.append(args)
        wrapped(*args)
        return int(sum(args))

    registry = Registry((defect("counted", Site(MODULE, "Base.add", count)),))
    registry.apply()
    beneath = vars(made_up.Base)["add"]
    made_up.Base.add = lambda self, one, other: beneath.__get__(self)(one, other)
    assert presence(registry.revert()) == [Presence.FAILED]
    assert presence(registry.apply()) == [Presence.FIXED]
    calls.clear()
    assert made_up.Base().add(1, 2) == 3
    assert calls == [(1, 2)]


def test_a_patch_that_was_interrupted_while_it_was_probed_can_be_reverted(made_up: Any) -> None:
    original = vars(made_up.Base)["add"]

    def interrupted() -> Finding:
        if vars(made_up.Base)["add"] is not original:
            raise SystemExit
        return Finding(present=True, evidence="")

    registry = Registry((defect(probe=interrupted),))
    with pytest.raises(SystemExit):
        registry.apply()
    registry.revert()
    assert vars(made_up.Base)["add"] is original


def test_a_mistake_in_the_switch_keeps_nobody_from_reverting(
    made_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, registry = vars(made_up.Base)["add"], Registry((defect(),))
    registry.apply()
    monkeypatch.setenv(SWITCH, "no-such-fix")
    assert presence(registry.revert()) == [Presence.REVERTED]
    assert vars(made_up.Base)["add"] is original
