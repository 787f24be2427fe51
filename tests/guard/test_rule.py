"""The rule's decision table, row by row, and what it guarantees for any history of calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deerflow_saver.guard.rule import (
    Place,
    PutFacts,
    Reason,
    WriteFacts,
    judge_put,
    judge_writes,
)


def put(**facts: Any) -> Reason | None:
    """The verdict on a put that continues the head, but for `facts`."""
    return judge_put(
        PutFacts(
            **{
                "head": "2",
                "head_parent": "1",
                "parent": "2",
                "parent_place": "head",
                "child": "3",
                "child_place": "newer",
                **facts,
            }
        )
    )


def writes(**facts: Any) -> Reason | None:
    """The verdict on delta writes on the head, but for `facts`."""
    return judge_writes(WriteFacts(**{"head": "2", "place": "head", "delta": True, **facts}))


FIRST = {"head": None, "head_parent": None, "parent_place": "newer"}
AGAIN = {"child": "2", "child_place": "head"}


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, None),
        ({"foreign": True}, "foreign writes"),
        ({"unapplied": True}, "unapplied writes"),
        ({"unapplied": True, **AGAIN, "parent": "1", "parent_place": "older"}, None),
        ({"child": "0", "child_place": "older"}, "backwards"),
        ({"parent": "1", "parent_place": "older"}, "fork"),
        ({"parent": "9", "parent_place": "newer"}, "orphan"),
        ({"parent": "9", **FIRST}, "orphan"),
        ({"parent": None, "parent_place": "older"}, "second root"),
        ({"parent": None, **FIRST}, None),
        ({"parent": "1", "parent_place": "older", **AGAIN}, None),
        ({"parent": "1", "parent_place": "older", "foreign": True, **AGAIN}, None),
        ({"parent": "0", "parent_place": "older", **AGAIN}, "other parent"),
        ({"parent": None, "parent_place": "older", **AGAIN}, "other parent"),
        ({"parent": None, "parent_place": "older", "head_parent": None, **AGAIN}, None),
    ],
)
def test_a_put_is_judged_by_where_parent_and_child_stand(
    facts: dict[str, Any], verdict: Reason | None
) -> None:
    assert put(**facts) == verdict


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, None),
        ({"foreign": True}, "foreign writes"),
        ({"foreign": True, "delta": False}, None),
        ({"place": "newer", "foreign": True}, None),
        ({"head": None, "place": "newer"}, None),
        ({"place": "newer", "coming": "fork"}, "fork"),
        ({"place": "newer", "coming": "second root", "delta": False}, "second root"),
        ({"place": "older"}, "fork"),
        ({"place": "older", "own_child": True}, "fork"),
        ({"place": "older", "delta": False}, None),
        ({"place": "older", "delta": False, "answer": True}, "fork"),
        ({"place": "older", "delta": False, "answer": True, "own_child": True}, None),
        ({"place": "older", "delta": False, "strict": True}, "late write"),
        ({"place": "older", "delta": False, "strict": True, "own_child": True}, None),
        ({"place": "head", "delta": False, "strict": True}, None),
        ({"place": "newer", "delta": False, "strict": True}, None),
    ],
)
def test_writes_are_judged_by_where_their_checkpoint_stands(
    facts: dict[str, Any], verdict: Reason | None
) -> None:
    assert writes(**facts) == verdict


def place_of(checkpoint_id: int | None, head: int | None) -> Place:
    if head is None or (checkpoint_id is not None and checkpoint_id > head):
        return "newer"
    return "head" if checkpoint_id == head else "older"


@given(st.lists(st.tuples(st.none() | st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_accepted_puts_make_one_line_that_ends_at_the_newest(
    calls: list[tuple[int | None, int]],
) -> None:
    parents: dict[int, int | None] = {}
    for parent, child in calls:
        head = max(parents, default=None)
        before = dict(parents)
        facts = PutFacts(
            head=None if head is None else str(head),
            head_parent=None if head is None or parents[head] is None else str(parents[head]),
            parent=None if parent is None else str(parent),
            parent_place=place_of(parent, head),
            child=str(child),
            child_place=place_of(child, head),
        )
        if judge_put(facts) is None:
            parents[child] = parent
            assert child not in before or before == parents
    line = sorted(parents)
    assert [parents[child] for child in line] == [None, *line[:-1]][: len(line)]
