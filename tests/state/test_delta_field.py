"""Delta channels of any reducer, against the whole values they stand for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Overwrite

from deerflow_saver import InvalidConfigError
from deerflow_saver.state import (
    ReducerDeltaChannel,
    delta_field,
    merge_message_writes,
    merge_promoted,
    merge_todos,
)

THREAD = {"configurable": {"thread_id": "1"}}


def union(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {**left, **right}


letters = st.sampled_from("abc")
KINDS: list[tuple[Any, Callable[[Any, Any], Any], st.SearchStrategy[Any]]] = [
    (list[str], operator.add, st.lists(letters, max_size=2)),
    (dict[str, int], union, st.dictionaries(letters, st.integers(0, 9), max_size=2)),
    (set[str], operator.or_, st.sets(letters, max_size=2)),
    (int, operator.add, st.integers(0, 9)),
    (str, operator.add, letters),
]


def graph(annotation: Any) -> Any:
    schema = typing_extensions.TypedDict("S", {"value": annotation, "last": str})  # noqa: UP013
    builder = StateGraph(schema)
    builder.add_node("end", lambda state: {"last": "x"})
    builder.add_edge(START, "end")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize(
    ("value_type", "reducer", "update"), KINDS, ids=["list", "dict", "set", "int", "str"]
)
@given(data=st.data())
def test_reads_equal_those_of_the_whole_value(
    value_type: Any, reducer: Any, update: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    full = graph(Annotated[value_type, reducer])
    delta = graph(Annotated[value_type, delta_field(reducer, snapshot_frequency=2)])
    steps = st.tuples(st.booleans(), update)
    for overwrite, value in data.draw(st.lists(steps, min_size=1, max_size=4)):
        for compiled in (full, delta):
            written = Overwrite(value) if overwrite else value
            compiled.invoke({"value": written, "last": ""}, THREAD)
        assert delta.get_state(THREAD).values == full.get_state(THREAD).values


@given(st.lists(st.lists(letters), max_size=6), st.integers(0, 6))
def test_batches_may_be_cut_anywhere(writes: list[list[str]], cut: int) -> None:
    fold = ReducerDeltaChannel(operator.add).reducer
    assert fold(fold([], writes[:cut]), writes[cut:]) == fold([], writes)


def test_an_optional_value_begins_as_none_and_its_reducer_is_told_so() -> None:
    compiled = graph(Annotated[list[str] | None, delta_field(merge_todos, snapshot_frequency=2)])
    compiled.invoke({"last": ""}, THREAD)
    assert compiled.get_state(THREAD).values["value"] is None
    for value in (["a"], None, Overwrite(None), ["b"], Overwrite(["c"])):
        compiled.invoke({"value": value, "last": ""}, THREAD)
    seen = [state.values.get("value") for state in compiled.get_state_history(THREAD)]
    assert [value for value in seen[::-1] if value is not None][0::3] == [
        ["a"],
        ["a"],
        ["b"],
        ["c"],
    ]
    stored = [row.checkpoint["channel_values"] for row in compiled.checkpointer.list(THREAD)]
    assert any(isinstance(values.get("value"), _DeltaSnapshot) for values in stored)


def test_json_schemas_show_the_declared_type() -> None:
    channel = StateGraph(
        typing_extensions.TypedDict(
            "S", {"value": Annotated[dict[str, Any] | None, delta_field(merge_promoted)]}
        )
    ).channels["value"]
    assert channel.UpdateType == channel.ValueType == dict[str, Any] | None
    assert channel.copy().ValueType == channel.ValueType
    assert channel.from_checkpoint(None).ValueType == channel.ValueType


def test_channels_are_equal_where_reducer_and_cadence_are() -> None:
    def other(left: Any, right: Any) -> Any:
        return right

    assert delta_field(union) == delta_field(union)
    assert delta_field(union) != delta_field(other)
    assert delta_field(union) != delta_field(union, snapshot_frequency=2)
    assert delta_field(union) != BinaryOperatorAggregate(dict, union)
    assert delta_field(union) != DeltaChannel(delta_field(union).reducer, snapshot_frequency=10)


def test_two_schemas_may_declare_the_same_channel() -> None:
    builder = StateGraph(
        typing_extensions.TypedDict("A", {"value": Annotated[dict, delta_field(union)]})
    )
    same = typing_extensions.TypedDict("B", {"value": Annotated[dict, delta_field(union)]})  # noqa: UP013
    builder.add_node("end", lambda state: {}, input_schema=same)
    assert isinstance(builder.channels["value"], ReducerDeltaChannel)
    different = typing_extensions.TypedDict(  # noqa: UP013
        "C", {"value": Annotated[dict, delta_field(union, snapshot_frequency=2)]}
    )
    with pytest.raises(ValueError, match="already exists with a different type"):
        builder.add_node("more", lambda state: {}, input_schema=different)


def test_add_messages_becomes_the_reducer_that_replays_alike() -> None:
    assert delta_field(add_messages, snapshot_frequency=3) == DeltaChannel(
        merge_message_writes, snapshot_frequency=3
    )


def test_formatting_messages_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="format"):
        delta_field(add_messages(format="langchain-openai"))


def test_a_reducer_may_be_any_callable() -> None:
    class Last:
        def __call__(self, left: Any, right: Any) -> Any:
            return right

    compiled = graph(Annotated[str, delta_field(Last())])
    compiled.invoke({"value": "a", "last": ""}, THREAD)
    compiled.invoke({"value": "b", "last": ""}, THREAD)
    assert compiled.get_state(THREAD).values["value"] == "b"
