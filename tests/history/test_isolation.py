"""What readers do to what they were given never shows in what the next reader gets."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Overwrite

from deerflow_saver.history.isolation import Block, Unkeepable, twins_can_be_reused

SERDE = JsonPlusSerializer()


@dataclass
class Note:
    text: str
    tags: list[str]


def message() -> AIMessage:
    return AIMessage(
        "look",
        id="a1",
        tool_calls=[{"name": "search", "args": {"q": ["x"]}, "id": "c1"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )


def block(*values: Any, isolation: Any = "safe", serde: Any = SERDE) -> Block:
    made = Block(serde, isolation)
    made.append([(f"t{i}", "c", round_trip(value)) for i, value in enumerate(values)])
    return made


def round_trip(value: Any) -> Any:
    return SERDE.loads_typed(SERDE.dumps_typed(value))


def values_of(taken: Block) -> list[Any]:
    return [value for _, _, value in taken.take()]


VALUES: dict[str, Callable[[], Any]] = {
    "message": message,
    "list of messages": lambda: [HumanMessage("hi", id="h"), message()],
    "list of messages and dicts": lambda: [message(), {"role": "user", "content": ["x"]}],
    "plain dict": lambda: {"files": {"a": ["x", 1, 1.5, True, None]}, "n": 1},
    "text": lambda: "text",
    "dataclass": lambda: Note("n", ["t"]),
    "tuple": lambda: ("user", "hi"),
    "datetime": lambda: {"at": datetime(2026, 1, 1, tzinfo=UTC)},
    "int keys": lambda: {1: "a", 2: ["b"]},
    "set": lambda: {"s": {1, 2}},
    "overwrite": lambda: Overwrite([message()]),
    "bytes": lambda: b"raw",
    "bytearray": lambda: bytearray(b"raw"),
    "message with artifact": lambda: ToolMessage("r", tool_call_id="c", artifact=Note("n", [])),
}


@pytest.mark.parametrize("isolation", ["safe", "copy", "shared"])
@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_every_read_gives_the_decoded_value_with_its_types(
    make: Callable[[], Any], isolation: str
) -> None:
    kept = block(make(), "after", isolation=isolation)
    expected = [round_trip(make()), "after"]
    for _ in range(3):
        assert repr(values_of(kept)) == repr(expected)
        assert list(map(type, values_of(kept))) == list(map(type, expected))


CHANGES: dict[str, Callable[[AIMessage], Any]] = {
    "content": lambda m: setattr(m, "content", "changed"),
    "a nested dict": lambda m: m.tool_calls[0]["args"].update(q=2),
    "a nested list": lambda m: m.tool_calls[0]["args"]["q"].append("y"),
    "a list": lambda m: m.tool_calls.clear(),
    "an empty dict": lambda m: m.additional_kwargs.update(k=1),
    "an attribute of its own": lambda m: setattr(m, "mark", 1),
    "the type of a number": lambda m: m.usage_metadata.update(input_tokens=True),
    "the order of keys": lambda m: m.usage_metadata.update(
        input_tokens=m.usage_metadata.pop("input_tokens")
    ),
    "a value nothing can pack": lambda m: m.additional_kwargs.update(k=object()),
    "the given fields": lambda m: m.__pydantic_fields_set__.add("name"),
    "another class": lambda m: setattr(m, "__class__", HumanMessage),
}


@pytest.mark.parametrize("isolation", ["safe", "copy"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("warm", [0, 2])
@pytest.mark.parametrize("many", [0, 100])
def test_a_changed_message_does_not_come_back(
    change: Callable[[Any], Any], isolation: str, warm: int, many: int
) -> None:
    padding = [f"padding {i}" for i in range(many)]
    kept = block([message()], message(), *padding, isolation=isolation)
    for _ in range(warm):
        values_of(kept)
    for index in (0, 1):
        taken = values_of(kept)[index]
        change(taken[0] if index == 0 else taken)
        del taken
        fresh = values_of(kept)
        assert [fresh[0][0].model_dump(), fresh[1].model_dump()] == [message().model_dump()] * 2
        assert repr(fresh[:2]) == repr([[message()], message()])
        assert fresh[1].__pydantic_fields_set__ == round_trip(message()).__pydantic_fields_set__


def test_a_changed_list_of_messages_does_not_come_back() -> None:
    first, second = HumanMessage("1", id="1"), HumanMessage("2", id="2")
    kept = block([first, second], *map(str, range(100)))
    for change in (
        list.clear,
        list.reverse,
        lambda items: items.append(first),
        lambda items: items.__setitem__(0, first.model_copy()),
        lambda items: items.pop(0),
    ):
        values_of(kept)
        change(values_of(kept)[0])
        assert values_of(kept)[0] == [first, second]


def test_the_returned_list_itself_is_the_callers() -> None:
    kept = block("a", "b")
    kept.take()[:].clear()
    assert values_of(kept) == ["a", "b"]


@pytest.mark.parametrize(
    "part",
    [
        lambda v: v,
        lambda v: v[0],
        lambda v: v[0].tool_calls,
        lambda v: v[0].tool_calls[0]["args"],
        lambda v: v[0].__dict__,
        lambda v: v[0].additional_kwargs,
    ],
    ids=["list", "message", "tool calls", "arguments", "dict", "empty dict"],
)
def test_whoever_holds_a_part_keeps_it_to_himself(part: Callable[[Any], Any]) -> None:
    kept = block([message()], *map(str, range(100)))
    values_of(kept)
    held = part(values_of(kept)[0])
    fresh = values_of(kept)[0]
    assert part(fresh) is not held
    assert part(fresh) == held


def test_a_held_write_keeps_its_message_from_being_given_again() -> None:
    kept = block(message(), *map(str, range(100)))
    kept.take()
    held = kept.take()[0]
    assert kept.take()[0][2] is not held[2]


@pytest.mark.skipif(not twins_can_be_reused(), reason="reference counts mean nothing here")
def test_untouched_objects_are_given_again() -> None:
    kept = block(*[[message()] for _ in range(80)], {"a": [1]})
    kept.take()
    ids = [id(value) for value in values_of(kept)]
    gc.collect()
    assert [id(value) for value in values_of(kept)] == ids


@pytest.mark.skipif(not twins_can_be_reused(), reason="reference counts mean nothing here")
def test_what_a_catching_up_reader_still_holds_makes_nothing_else_anew() -> None:
    kept = block(*[[message()] for _ in range(80)])
    for number in range(3):
        kept.take()
        ids = [id(value) for value in values_of(kept)]
        more = [(f"more-{number}", "c", [message()])]
        kept.append(more)
        assert [id(value) for value in values_of(kept)[:-1]] == ids
        del more


@pytest.mark.skipif(not twins_can_be_reused(), reason="reference counts mean nothing here")
def test_a_write_that_was_given_and_is_held_is_not_given_again_after_growth() -> None:
    kept = block(*[[message()] for _ in range(80)])
    kept.append([("last", "c", [message()])])
    held = kept.take()[-1][2]
    kept.append([("more", "c", [message()])])
    assert kept.take()[-2][2] is not held


def test_few_objects_are_made_afresh() -> None:
    kept = block(message())
    assert values_of(kept)[0] is not values_of(kept)[0]


def test_copy_isolation_gives_fresh_objects_and_shared_the_same() -> None:
    copied, shared = block(message(), isolation="copy"), block(message(), isolation="shared")
    assert values_of(copied)[0] is not values_of(copied)[0]
    assert values_of(shared)[0] is values_of(shared)[0]


def test_what_cannot_be_serialised_is_not_kept_and_leaves_the_block_as_it_was() -> None:
    kept = block("a")
    with pytest.raises(Unkeepable):
        kept.append([("t", "c", lambda: None)])
    assert values_of(kept) == ["a"]
    kept.append([("t", "c", "b")])
    assert values_of(kept) == ["a", "b"]


def test_a_bytearray_of_the_first_reader_is_his_own() -> None:
    value = bytearray(b"raw")
    kept = Block(SERDE, "safe")
    kept.append([("t", "c", value)])
    value.extend(b"changed")
    assert values_of(kept) == [bytearray(b"raw")]


def test_a_serialiser_of_ones_own_keeps_its_types() -> None:
    class Pickling(JsonPlusSerializer):
        """Gives back what plain msgpack would turn into bytes."""

    import pickle

    Pickling.loads_typed = lambda self, data: pickle.loads(data[1])  # type: ignore[method-assign]
    Pickling.dumps_typed = lambda self, obj: ("pickle", pickle.dumps(obj))  # type: ignore[method-assign]
    kept = Block(Pickling(), "safe")
    kept.append([("t", "c", {"raw": bytearray(b"x")})])
    kept.take()[0][2]["raw"].extend(b"y")
    assert kept.take()[0][2] == {"raw": bytearray(b"x")}
    assert type(kept.take()[0][2]["raw"]) is bytearray


def test_sizes_grow_with_what_is_kept_and_copies_keep_no_objects() -> None:
    safe, copied = block(message()), block(message(), isolation="copy")
    before = safe.size
    safe.append([("t", "c", "x" * 10_000)])
    assert safe.size - before > 20_000
    assert copied.size < before


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
texts = st.text(max_size=20)
messages: st.SearchStrategy[BaseMessage] = st.builds(
    HumanMessage, content=texts, id=texts
) | st.builds(
    AIMessage,
    content=texts,
    id=texts,
    additional_kwargs=st.dictionaries(texts, plain, max_size=3),
)


several = st.lists(plain | messages | st.lists(messages | plain, max_size=3), max_size=6)


@given(several, st.data())
def test_any_decoded_values_survive_any_mutation_of_what_was_given(
    values: list[Any], data: st.DataObject
) -> None:
    values = [*values, *map(str, range(data.draw(st.sampled_from([0, 100]))))]
    kept = block(*values)
    for _ in range(4):
        taken = values_of(kept)
        assert repr(taken) == repr([round_trip(value) for value in values])
        if taken and data.draw(st.booleans()):
            mutate(data.draw(st.sampled_from(taken)))
        del taken
        grown = data.draw(several)
        kept.append([(f"more-{i}", "c", round_trip(value)) for i, value in enumerate(grown)])
        values += grown


def mutate(value: Any) -> None:
    if isinstance(value, list):
        value.append("changed")
    elif isinstance(value, dict):
        value["changed"] = True
    elif isinstance(value, BaseMessage):
        value.content = "changed"
