"""The small reducers of `ThreadState`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deerflow_saver.state import (
    merge_artifacts,
    merge_delegations,
    merge_goal,
    merge_promoted,
    merge_sandbox,
    merge_skill_context,
    merge_todos,
    merge_viewed_images,
)
from deerflow_saver.state.reducers import MAX_DELEGATIONS, MAX_SKILLS


def delegation(name: str, status: str = "running", **fields: Any) -> dict[str, Any]:
    return {"id": name, "status": status, **fields}


def skill(path: str, **fields: Any) -> dict[str, Any]:
    return {"name": path, "path": path, "description": "", "loaded_at": 0, **fields}


def promoted(catalog: str, *names: str) -> dict[str, Any]:
    return {"catalog_hash": catalog, "names": list(names)}


@pytest.mark.parametrize(
    ("existing", "new", "merged"),
    [
        ({"sandbox_id": "a"}, None, {"sandbox_id": "a"}),
        (None, {"sandbox_id": "a"}, {"sandbox_id": "a"}),
        ({"sandbox_id": "a"}, {"sandbox_id": "a"}, {"sandbox_id": "a"}),
        ({}, {"sandbox_id": None}, {}),
        (None, None, None),
    ],
)
def test_a_thread_keeps_its_sandbox(existing: Any, new: Any, merged: Any) -> None:
    assert merge_sandbox(existing, new) == merged


def test_another_sandbox_is_a_conflict() -> None:
    with pytest.raises(ValueError, match=r"^Conflicting sandbox state updates: 'x' != 'y'$"):
        merge_sandbox({"sandbox_id": "x"}, {"sandbox_id": "y"})
    with pytest.raises(ValueError, match="updates: 'x' != None"):
        merge_sandbox({"sandbox_id": "x"}, {})


@pytest.mark.parametrize(
    ("existing", "new", "merged"),
    [
        (None, None, []),
        (None, ["b", "b"], ["b", "b"]),
        (["a"], None, ["a"]),
        (["a", "b"], ["b", "c", "a", "c"], ["a", "b", "c"]),
        (["a"], [], ["a"]),
    ],
)
def test_artifacts_are_kept_once_in_order(existing: Any, new: Any, merged: Any) -> None:
    assert merge_artifacts(existing, new) == merged


@pytest.mark.parametrize(
    ("existing", "new", "merged"),
    [
        (None, None, {}),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1}, {}, {}),
        ({"a": 1, "b": 1}, {"b": 2, "c": 2}, {"a": 1, "b": 2, "c": 2}),
    ],
)
def test_images_add_up_and_an_empty_update_clears(existing: Any, new: Any, merged: Any) -> None:
    assert merge_viewed_images(existing, new) == merged


@pytest.mark.parametrize("reducer", [merge_todos, merge_goal])
def test_the_newest_value_wins_and_none_keeps(reducer: Any) -> None:
    assert reducer(["old"], None) == ["old"]
    assert reducer(["old"], ["new"]) == ["new"]
    assert reducer(["old"], []) == []
    assert reducer(None, ["new"]) == ["new"]


@pytest.mark.parametrize(
    ("existing", "new", "merged"),
    [
        (None, None, None),
        (promoted("h", "a"), {}, promoted("h", "a")),
        (None, promoted("h", "a", "a"), promoted("h", "a")),
        (promoted("h", "a", "b"), promoted("h", "b", "c"), promoted("h", "a", "b", "c")),
        (promoted("g", "a"), promoted("h", "b", "b"), promoted("h", "b")),
        ({"names": ["a"]}, promoted("h", "b"), promoted("h", "b")),
        ({"names": ["a"]}, {"names": ["b"]}, {"catalog_hash": None, "names": ["b"]}),
    ],
)
def test_promoted_tools_belong_to_one_catalog(existing: Any, new: Any, merged: Any) -> None:
    assert merge_promoted(existing, new) == merged


def test_an_empty_promotion_returns_the_same_object() -> None:
    existing = promoted("h", "a")
    assert merge_promoted(existing, None) is existing


def test_delegations_stay_where_they_first_appeared() -> None:
    merged = merge_delegations(
        [delegation("a"), delegation("b")], [delegation("c"), delegation("a", "completed")]
    )
    assert [(entry["id"], entry["status"]) for entry in merged] == [
        ("a", "completed"),
        ("b", "running"),
        ("c", "running"),
    ]


@pytest.mark.parametrize(
    "ended", ["completed", "failed", "cancelled", "timed_out", "polling_timed_out"]
)
def test_a_delegation_that_ended_is_not_taken_back(ended: str) -> None:
    assert merge_delegations([delegation("a", ended)], [delegation("a")]) == [
        delegation("a", ended)
    ]
    assert merge_delegations([delegation("a", ended)], [delegation("a", "failed")]) == [
        delegation("a", "failed")
    ]


@pytest.mark.parametrize("created", [{"created_at": "1"}, {}])
def test_a_delegation_keeps_when_and_by_which_run_it_was_made(created: dict[str, str]) -> None:
    held = delegation("a", run_id="r1", **created)
    (merged,) = merge_delegations([held], [delegation("a", "failed", stop_reason="x")])
    assert merged == delegation("a", "failed", stop_reason="x", run_id="r1", **created)
    (merged,) = merge_delegations([held], [delegation("a", run_id="r2", created_at="2")])
    assert merged["run_id"] == "r2"
    assert merged["created_at"] == created.get("created_at", "2")


def test_the_newest_delegations_are_kept() -> None:
    entries = [delegation(str(number)) for number in range(MAX_DELEGATIONS + 3)]
    assert merge_delegations(entries[:5], entries[5:]) == entries[3:]


@pytest.mark.parametrize("new", [None, []])
def test_no_delegations_change_nothing(new: Any) -> None:
    assert merge_delegations(None, new) == []
    assert merge_delegations([delegation("a")], new) == [delegation("a")]


def test_skills_are_normalised_even_without_an_update() -> None:
    old = {"path": "p", "description": f"  a\n b {'x' * 600}", "loaded_at": True, "body": "long"}
    (entry,) = merge_skill_context([old], None)
    assert entry["description"].startswith("a b xxx")
    assert len(entry["description"]) == 500
    assert {**entry, "description": ""} == skill("p", name="")


def test_a_skill_read_again_moves_to_the_end_and_the_newest_are_kept() -> None:
    skills = [skill(str(number)) for number in range(MAX_SKILLS)]
    again = skill("0", loaded_at=7)
    assert merge_skill_context(skills, [again]) == [*skills[1:], again]
    assert merge_skill_context(skills, [skill("new")]) == [*skills[1:], skill("new")]


names = st.sampled_from("abc")
FIELDS = {
    merge_sandbox: st.just({"sandbox_id": "a"}),
    merge_artifacts: st.lists(names),
    merge_viewed_images: st.dictionaries(names, st.integers()),
    merge_todos: st.lists(names),
    merge_goal: st.builds(lambda name: {"objective": name}, names),
    merge_promoted: st.builds(lambda h, n: promoted(h, *n), names, st.lists(names)),
    merge_delegations: st.lists(
        st.builds(delegation, names, st.sampled_from(("running", "failed")))
    ),
    merge_skill_context: st.lists(st.builds(skill, names)),
}


@pytest.mark.parametrize("reducer", FIELDS, ids=lambda reducer: reducer.__name__)
@given(data=st.data())
def test_reducers_change_nothing_they_are_given(reducer: Any, data: st.DataObject) -> None:
    values = st.none() | FIELDS[reducer]
    existing, new = data.draw(values), data.draw(values)
    before = copy.deepcopy((existing, new))
    first = reducer(existing, new)
    assert (existing, new) == before
    assert reducer(existing, new) == first
