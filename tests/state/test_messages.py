"""`merge_message_writes` against the fold of `add_messages` it stands for."""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from deerflow_saver.state import merge_message_writes
from deerflow_saver.state import messages as module

IDS = ("a", "b", "c", "d")
ids = st.sampled_from(IDS)
texts = st.sampled_from(("x", "y", ""))


def identified(given_ids: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda i, t: HumanMessage(t, id=i), given_ids, texts),
        st.builds(lambda i, t: AIMessage(t, id=i), given_ids, texts),
        st.builds(lambda i, t: AIMessageChunk(content=t, id=i), given_ids, texts),
        st.builds(lambda i, t: {"role": "user", "content": t, "id": i}, given_ids, texts),
    )


removals = st.builds(lambda i: RemoveMessage(id=i), ids)
remove_all = st.just(RemoveMessage(id=REMOVE_ALL_MESSAGES))
bare = st.one_of(texts, st.tuples(st.sampled_from(("human", "ai")), texts))
nameless = st.one_of(bare, identified(st.none()))
invalid = st.sampled_from(({"nonsense": 1}, 3))
named = st.one_of(identified(ids), removals, remove_all)
anything = st.one_of(named, named, named, nameless)
states = st.lists(st.one_of(identified(ids), removals), max_size=5)


def writes_of(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(items, max_size=5), items)


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    """What a call returns, or the type and text of what it raises."""
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - errors are part of what is compared
        return type(error), str(error)


def fold(state: Any, writes: list[Any]) -> Any:
    return reduce(add_messages, copy.deepcopy(writes), copy.deepcopy(state))


def numbered(messages: Any, known: frozenset[str]) -> Any:
    """The messages with every minted id replaced by the order of its first appearance."""
    if isinstance(messages, tuple):
        return messages
    minted: dict[str | None, str] = {}
    return [
        message
        if message.id in known
        else message.model_copy(
            update={"id": minted.setdefault(message.id, f"minted {len(minted)}")}
        )
        for message in messages
    ]


KNOWN = frozenset({*IDS, REMOVE_ALL_MESSAGES})


@given(states, st.lists(writes_of(named), min_size=1, max_size=6))
def test_equals_the_fold_ids_included(state: list[Any], writes: list[Any]) -> None:
    assert outcome(merge_message_writes, state, writes) == outcome(fold, state, writes)


@given(
    st.lists(st.one_of(identified(ids), nameless), max_size=4),
    st.lists(writes_of(anything), min_size=1, max_size=6),
)
def test_equals_the_fold_but_for_the_names_of_minted_ids(state: Any, writes: list[Any]) -> None:
    mine = outcome(merge_message_writes, state, writes)
    assert numbered(mine, KNOWN) == numbered(outcome(fold, state, writes), KNOWN)


@given(
    st.one_of(states, anything),
    st.lists(st.one_of(writes_of(st.one_of(anything, invalid)), st.none()), min_size=1, max_size=4),
)
def test_raises_what_the_fold_raises(state: Any, writes: list[Any]) -> None:
    mine, other = outcome(merge_message_writes, state, writes), outcome(fold, state, writes)
    assert isinstance(mine, tuple) == isinstance(other, tuple)
    if isinstance(mine, tuple):
        assert mine == other


@given(
    st.lists(st.one_of(identified(ids), nameless), max_size=4),
    st.lists(st.one_of(writes_of(anything), st.none()), max_size=6),
    st.integers(0, 6),
)
def test_batches_may_be_cut_anywhere(state: Any, writes: list[Any], cut: int) -> None:
    def in_two() -> list[BaseMessage]:
        return merge_message_writes(merge_message_writes(state, writes[:cut]), writes[cut:])

    at_once = outcome(merge_message_writes, state, writes)
    if not writes:
        assert at_once == state
    else:
        assert outcome(in_two) == at_once


@given(
    st.lists(st.one_of(identified(ids), nameless), max_size=4),
    st.lists(writes_of(anything), max_size=6),
)
def test_changes_nothing_it_is_given(state: Any, writes: list[Any]) -> None:
    before = copy.deepcopy((state, writes))
    outcome(merge_message_writes, state, writes)
    assert (state, writes) == before


@given(
    st.lists(st.one_of(identified(ids), nameless), max_size=4),
    st.lists(writes_of(st.one_of(identified(ids), nameless)), min_size=1, max_size=6),
)
def test_minted_ids_are_unique_and_come_back_at_every_replay(state: Any, writes: Any) -> None:
    first = merge_message_writes(copy.deepcopy(state), copy.deepcopy(writes))
    assert merge_message_writes(state, writes) == first
    minted = Counter(message.id for message in first if message.id not in IDS)
    assert set(minted.values()) <= {1}
    assert all(message.id for message in first)


MINTED = [message.id for message in merge_message_writes([], [["x", "x", "x"]])]
recalled = st.one_of(
    st.builds(lambda i: HumanMessage("other", id=i), st.sampled_from(MINTED)),
    st.builds(lambda i: RemoveMessage(id=i), st.sampled_from(MINTED)),
    st.just("x"),
    remove_all,
)


@given(st.lists(st.lists(recalled, max_size=4), min_size=1, max_size=8), st.integers(0, 8))
def test_minted_ids_survive_writes_that_name_and_remove_them(writes: Any, cut: int) -> None:
    at_once = outcome(merge_message_writes, [], writes)

    def in_two() -> Any:
        return merge_message_writes(merge_message_writes([], writes[:cut]), writes[cut:])

    assert outcome(in_two) == at_once


def test_a_minted_id_differs_by_content_and_kind_and_reuses_the_first_free_number() -> None:
    first, second, other, ai = merge_message_writes([], [["x", "x", "y", ("ai", "x")]])
    stem = str(first.id).removesuffix("-0")
    assert second.id == f"{stem}-1"
    assert not str(other.id).startswith(stem)
    assert not str(ai.id).startswith(stem)
    state = merge_message_writes(
        [first, second, other], [RemoveMessage(id=str(first.id)), "x", "x"]
    )
    assert [message.id for message in state] == [second.id, other.id, first.id, f"{stem}-2"]


def test_a_minted_id_that_the_write_itself_spells_out_is_left_to_that_message() -> None:
    (minted,) = merge_message_writes([], ["x"])
    merged = merge_message_writes([], [["x", HumanMessage("other", id=minted.id)]])
    assert [message.content for message in merged] == ["x", "other"]
    assert merged[1].id == minted.id


def test_ids_that_only_look_minted_do_no_harm() -> None:
    (minted,) = merge_message_writes([], ["x"])
    stem = str(minted.id).removesuffix("-0")
    strange = [HumanMessage("z", id=f"{stem}-{tail}") for tail in ("9" * 5000, "²", "007", "")]
    gone = [RemoveMessage(id=str(message.id)) for message in strange]
    merged = merge_message_writes(strange, ["x", gone, "x"])
    assert [message.id for message in merged] == [f"{stem}-0", f"{stem}-1"]


def test_content_without_a_json_form_gets_the_same_id_in_every_process() -> None:
    def write() -> list[HumanMessage]:
        return [HumanMessage([{"data": b"\xff", "opaque": object()}])]

    assert merge_message_writes([], [write()])[0].id == merge_message_writes([], [write()])[0].id


def test_an_empty_batch_returns_a_copy_and_names_nothing() -> None:
    state = [HumanMessage("x")]
    merged = merge_message_writes(state, [])
    assert merged == state
    assert merged is not state
    assert merged[0].id is None


@pytest.mark.parametrize(("state", "side"), [([], "right"), (["x"], "left"), ("", "right")])
def test_a_null_write_names_the_side_that_was_received(state: Any, side: str) -> None:
    with pytest.raises(ValueError, match=f"Only received: '{side}'"):
        merge_message_writes(state, [None])


def test_a_null_state_is_refused_as_the_fold_refuses_it() -> None:
    assert outcome(merge_message_writes, None, ["x"]) == outcome(fold, None, ["x"])


def test_every_write_is_coerced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    convert = module.convert_to_messages

    def counting(items: Any) -> Any:
        seen.append(len(items))
        return convert(items)

    monkeypatch.setattr(module, "convert_to_messages", counting)
    merge_message_writes(["s"], [["a", "b"], "c"])
    assert seen == [1, 2, 1]


def line_events(call: Callable[[], object]) -> int:
    """How many lines of the reducer run: a cost that no busy machine changes."""
    count = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        if "deerflow_saver" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def appends(size: int) -> Callable[[], object]:
    writes = [[HumanMessage("q"), AIMessage("a", id=f"a{i}")] for i in range(size)]
    return lambda: merge_message_writes([], writes)


def replaced_and_removed(size: int) -> Callable[[], object]:
    state = [HumanMessage("q", id=f"q{i}") for i in range(size)]
    writes = [
        [HumanMessage("again", id=f"q{i}"), RemoveMessage(id=f"q{i - 1 if i else 0}"), "new"]
        for i in range(1, size)
    ]
    return lambda: merge_message_writes(state, writes)


def nameless_after_removal(size: int) -> Callable[[], object]:
    named = merge_message_writes([], [["x"] * size])
    writes = [[RemoveMessage(id=str(named[0].id))], ["x", "x"]] * size
    return lambda: merge_message_writes(named, writes)


@pytest.mark.parametrize("history", [appends, replaced_and_removed, nameless_after_removal])
def test_the_work_grows_linearly(history: Callable[[int], Callable[[], object]]) -> None:
    work = [line_events(history(size)) for size in (50, 100, 200)]
    assert all(larger < 2.2 * smaller for smaller, larger in pairwise(work))
