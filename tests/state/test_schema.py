"""State schemas in both modes, of every kind of class."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Annotated, Any, NotRequired, Required, get_type_hints

import pydantic
import pytest
import typing_extensions
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.topic import Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer

from deerflow_saver import InvalidConfigError
from deerflow_saver.channel_mode import freeze, thawed
from deerflow_saver.state import (
    DELTA_MESSAGES_FIELD,
    THREAD_STATE_REDUCER_FIELDS,
    DeltaThreadState,
    ReducerDeltaChannel,
    ThreadState,
    adapt_state_schema_for_mode,
    delta_field,
    delta_messages_field,
    get_thread_state_schema,
    merge_artifacts,
    merge_message_writes,
)
from deerflow_saver.state import (
    schema as module,
)

THREAD = {"configurable": {"thread_id": "1"}}


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    with thawed():
        yield


def concat(left: list[str], right: list[str]) -> list[str]:
    return [*left, *right]


def batch(state: list[str], writes: Any) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class Typed(typing_extensions.TypedDict, total=False):
    title: str


class Mixed(Typed):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], concat]
    note: NotRequired[str]


class Loose(typing_extensions.TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    owner: Required[str]


@dataclasses.dataclass(frozen=True)
class Frozen:
    messages: Annotated[list[AnyMessage], add_messages] = dataclasses.field(default_factory=list)
    log: Annotated[list[str], concat] = dataclasses.field(default_factory=list)
    title: str = "untitled"

    def heading(self) -> str:
        return self.title.upper()

    def __repr__(self) -> str:
        return f"<{self.title}>"


@dataclasses.dataclass
class WithoutMessages:
    owner: str
    log: Annotated[list[str], concat] = dataclasses.field(default_factory=list)


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    messages: Annotated[list[AnyMessage], add_messages] = pydantic.Field(
        default_factory=list, description="said"
    )
    log: Annotated[list[str], concat] = pydantic.Field(default_factory=list, max_length=99)
    title: str = "untitled"

    @pydantic.field_validator("title")
    @classmethod
    def not_empty(cls, value: str) -> str:
        if not value:
            raise ValueError("no title")
        return value


class ModelWithoutMessages(pydantic.BaseModel):
    owner: str


class Plain:
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], concat]
    title: str


KINDS = (Mixed, Frozen, Model, Plain)


def channels(schema: Any) -> dict[str, Any]:
    return dict(StateGraph(schema).channels)


def graph(schema: Any) -> Any:
    """Echoes the last message and logs how many there were."""

    def echo(state: Any) -> dict[str, Any]:
        messages = state["messages"] if isinstance(state, dict) else state.messages
        return {
            "messages": [HumanMessage("echo", id=f"e{len(messages)}")],
            "log": [str(len(messages))],
            "title": "t",
        }

    builder = StateGraph(schema)
    builder.add_node("echo", echo)
    builder.add_edge(START, "echo")
    return builder.compile(checkpointer=InMemorySaver())


# The state of a thread.


def test_full_mode_stores_every_channel_of_the_state_whole() -> None:
    assert get_thread_state_schema("full") is ThreadState
    found = channels(ThreadState)
    reducers = {name for name, ch in found.items() if isinstance(ch, BinaryOperatorAggregate)}
    assert reducers == THREAD_STATE_REDUCER_FIELDS
    assert not any(isinstance(channel, DeltaChannel) for channel in found.values())


def test_delta_mode_stores_the_messages_as_writes_and_nothing_else() -> None:
    assert get_thread_state_schema("delta") is DeltaThreadState
    full, delta = channels(ThreadState), channels(DeltaThreadState)
    assert full.keys() == delta.keys()
    assert [name for name in full if full[name] != delta[name]] == ["messages"]
    assert delta["messages"] == DeltaChannel(merge_message_writes, snapshot_frequency=10)


def test_both_schemas_ask_for_the_same_keys() -> None:
    assert {"messages", "artifacts", "todos"} <= ThreadState.__required_keys__
    assert {"sandbox", "title", "summary_text"} <= ThreadState.__optional_keys__
    assert DeltaThreadState.__required_keys__ == ThreadState.__required_keys__
    assert DeltaThreadState.__optional_keys__ == ThreadState.__optional_keys__


def test_another_cadence_has_a_schema_of_its_own() -> None:
    schema = get_thread_state_schema("delta", 250)
    assert schema.__name__ == "DeltaThreadState_f250"
    assert schema is get_thread_state_schema("delta", 250)
    assert channels(schema)["messages"].snapshot_frequency == 250
    assert get_thread_state_schema("delta", 10) is DeltaThreadState


def test_the_frozen_cadence_is_the_default() -> None:
    freeze("delta", 7)
    assert get_thread_state_schema("delta").__name__ == "DeltaThreadState_f7"
    assert channels(adapt_state_schema_for_mode(Mixed, "delta"))["messages"].snapshot_frequency == 7


@pytest.mark.parametrize("mode", ["Delta", "", None, True])
def test_what_is_no_mode_is_refused(mode: Any) -> None:
    with pytest.raises(InvalidConfigError):
        get_thread_state_schema(mode)
    with pytest.raises(InvalidConfigError):
        adapt_state_schema_for_mode(Mixed, mode)


@pytest.mark.parametrize("frequency", [0, -1, True, "10", 1.5])
def test_what_is_no_cadence_is_refused(frequency: Any) -> None:
    for build in (
        lambda: get_thread_state_schema("delta", frequency),
        lambda: adapt_state_schema_for_mode(Mixed, "delta", frequency),
        lambda: delta_messages_field(frequency),
        lambda: delta_field(concat, snapshot_frequency=frequency),
    ):
        with pytest.raises(InvalidConfigError):
            build()


def test_the_field_of_messages_carries_its_cadence() -> None:
    assert delta_messages_field(3).__metadata__[0].snapshot_frequency == 3
    assert DELTA_MESSAGES_FIELD.__metadata__[0].snapshot_frequency == 10
    assert DELTA_MESSAGES_FIELD.__origin__ == list[AnyMessage]


WITHOUT_LANGCHAIN = """
import sys
sys.modules["langchain"] = None
from deerflow_saver.state import DeltaThreadState, ThreadState
from langgraph.graph import StateGraph
print(sorted(StateGraph(ThreadState).channels), sorted(StateGraph(DeltaThreadState).channels))
"""


def test_the_channels_are_the_same_without_langchain() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LANGCHAIN], check=True, capture_output=True, text=True
    )
    names = sorted(channels(ThreadState))
    assert done.stdout == f"{names} {names}\n"


# Any other schema.


@pytest.mark.parametrize("schema", KINDS)
def test_full_mode_returns_the_schema_itself(schema: Any) -> None:
    assert adapt_state_schema_for_mode(schema, "full") is schema


@pytest.mark.parametrize("schema", KINDS)
def test_only_the_messages_become_a_delta_channel(schema: Any) -> None:
    before = dict(vars(schema))
    adapted = adapt_state_schema_for_mode(schema, "delta", 5)
    full, delta = channels(schema), channels(adapted)
    assert full.keys() == delta.keys()
    assert [name for name in full if full[name] != delta[name]] == ["messages"]
    assert delta["messages"] == DeltaChannel(merge_message_writes, snapshot_frequency=5)
    assert dict(vars(schema)) == before


@pytest.mark.parametrize("schema", KINDS)
def test_a_schema_is_adapted_once_per_cadence(schema: Any) -> None:
    adapted = adapt_state_schema_for_mode(schema, "delta", 5)
    assert adapted is adapt_state_schema_for_mode(schema, "delta", 5)
    assert adapted.__name__ == f"Delta{schema.__module__.replace('.', '_')}_{schema.__name__}_f5"
    assert adapted.__module__ == schema.__module__
    other = adapt_state_schema_for_mode(schema, "delta", 6)
    assert channels(other)["messages"].snapshot_frequency == 6


@pytest.mark.parametrize("schema", KINDS)
def test_an_adapted_schema_is_not_adapted_again(schema: Any) -> None:
    adapted = adapt_state_schema_for_mode(schema, "delta", 5)
    assert adapt_state_schema_for_mode(adapted, "delta", 5) is adapted


@pytest.mark.parametrize("schema", KINDS)
def test_both_modes_materialise_the_same_state(schema: Any) -> None:
    chosen = ("messages", "log")
    full = graph(schema)
    delta = graph(adapt_state_schema_for_mode(schema, "delta", 2, channels=chosen))
    for turn in range(5):
        asked = {"messages": [HumanMessage("q", id=f"q{turn}")], "log": ["asked"]}
        for compiled in (full, delta):
            compiled.invoke(asked, THREAD)
        assert delta.get_state(THREAD).values == full.get_state(THREAD).values
    assert [s.values for s in delta.get_state_history(THREAD)] == [
        s.values for s in full.get_state_history(THREAD)
    ]
    stored = [row.checkpoint["channel_values"] for row in delta.checkpointer.list(THREAD)]
    for name in chosen:
        assert any(isinstance(values.get(name), _DeltaSnapshot) for values in stored)
        assert any(name not in values for values in stored)


def test_required_and_optional_keys_stay() -> None:
    adapted = adapt_state_schema_for_mode(Mixed, "delta", channels=("messages", "log"))
    hints = get_type_hints(adapted, include_extras=True)
    assert hints["note"] == NotRequired[str]
    assert typing_extensions.is_typeddict(adapted)
    loose = adapt_state_schema_for_mode(Loose, "delta")
    assert get_type_hints(loose, include_extras=True)["owner"] == Required[str]
    assert "title" in adapted.__optional_keys__


def test_a_generic_schema_with_arguments_is_adapted() -> None:
    from langchain.agents import AgentState

    adapted = adapt_state_schema_for_mode(AgentState[dict], "delta")
    found = channels(adapted)
    assert found.keys() == channels(AgentState).keys()
    assert isinstance(found["messages"], DeltaChannel)


def test_a_dataclass_keeps_its_constructor_defaults_and_methods() -> None:
    adapted = adapt_state_schema_for_mode(Frozen, "delta")
    state = adapted(title="a")
    assert isinstance(state, Frozen)
    assert (state.messages, state.heading(), repr(state)) == ([], "A", "<a>")
    assert dataclasses.fields(adapted) == dataclasses.fields(Frozen)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.title = "b"


def test_a_model_keeps_its_validators_and_limits() -> None:
    adapted = adapt_state_schema_for_mode(Model, "delta", channels=("messages", "log"))
    assert adapted().messages == []
    assert adapted.model_fields["messages"].description == "said"
    for wrong in ({"title": ""}, {"unknown": 1}, {"log": ["x"] * 100}):
        with pytest.raises(pydantic.ValidationError):
            adapted(**wrong)


@pytest.mark.parametrize("schema", [WithoutMessages, ModelWithoutMessages, Typed])
def test_messages_are_added_where_they_are_missing(schema: Any) -> None:
    adapted = adapt_state_schema_for_mode(schema, "delta", 5)
    found = channels(adapted)
    assert found["messages"] == DeltaChannel(merge_message_writes, snapshot_frequency=5)
    assert found.keys() == {"messages", *channels(schema)}
    if schema is not Typed:
        assert adapted(owner="me").messages == []
        assert adapted(owner="me").messages is not adapted(owner="me").messages


def test_a_channel_of_messages_without_a_reducer_gets_one() -> None:
    class Bare(typing_extensions.TypedDict):
        messages: list[AnyMessage]

    found = channels(adapt_state_schema_for_mode(Bare, "delta", 5))
    assert found["messages"] == DeltaChannel(merge_message_writes, snapshot_frequency=5)


def test_a_reducer_of_the_authors_own_is_kept() -> None:
    class Own(typing_extensions.TypedDict):
        messages: Annotated[list[str], concat]

    channel = channels(adapt_state_schema_for_mode(Own, "delta", 5))["messages"]
    assert channel == delta_field(concat, snapshot_frequency=5)
    again = adapt_state_schema_for_mode(adapt_state_schema_for_mode(Own, "delta", 5), "delta", 6)
    assert channels(again)["messages"] == delta_field(concat, snapshot_frequency=6)


def test_delta_channels_that_are_there_get_the_cadence() -> None:
    class Deltas(typing_extensions.TypedDict):
        messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
        log: Annotated[list[str], DeltaChannel(batch)]

    found = channels(adapt_state_schema_for_mode(Deltas, "delta", 5, channels=("messages", "log")))
    assert found["messages"] == DeltaChannel(merge_message_writes, snapshot_frequency=5)
    assert found["log"] == DeltaChannel(batch, snapshot_frequency=5)


def test_what_else_an_annotation_says_stays() -> None:
    class Marked(typing_extensions.TypedDict):
        messages: NotRequired[Annotated[list[BaseMessage], "private", add_messages]]

    adapted = adapt_state_schema_for_mode(Marked, "delta")
    hint = get_type_hints(adapted, include_extras=True)["messages"]
    assert hint.__args__[0].__metadata__[0] == "private"
    assert hint.__args__[0].__origin__ == list[BaseMessage]
    assert adapted.__optional_keys__ >= {"messages"}


def test_optional_messages_begin_as_an_empty_list() -> None:
    class Optional(typing_extensions.TypedDict):
        messages: Annotated[list[AnyMessage] | None, add_messages]
        log: Annotated[list[str], concat]
        title: str

    compiled = graph(adapt_state_schema_for_mode(Optional, "delta"))
    compiled.invoke({"log": []}, THREAD)
    assert [m.id for m in compiled.get_state(THREAD).values["messages"]] == ["e0"]


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (Annotated[list[str], Topic(str)], "Topic"),
        (Annotated[list[str], EphemeralValue], "EphemeralValue"),
    ],
)
def test_a_channel_of_another_kind_is_refused_by_name(annotation: Any, kind: str) -> None:
    schema = typing_extensions.TypedDict("Other", {"messages": annotation})  # noqa: UP013
    with pytest.raises(InvalidConfigError, match=rf"Other\.messages is a {kind}"):
        adapt_state_schema_for_mode(schema, "delta")


def test_channels_that_are_absent_or_have_no_reducer_stay() -> None:
    wanted = ("messages", "title", "nowhere", "log")
    found = channels(adapt_state_schema_for_mode(Mixed, "delta", channels=wanted))
    assert found["title"] == channels(Mixed)["title"]
    assert "nowhere" not in found
    assert isinstance(found["log"], ReducerDeltaChannel)
    unnamed = adapt_state_schema_for_mode(Typed, "delta", channels=("title",))
    assert unnamed is Typed


def test_names_that_are_imported_later_are_no_obstacle_and_a_missing_one_is_named() -> None:
    namespace: dict[str, Any] = {"__module__": __name__}
    namespace["__annotations__"] = {
        "messages": "Annotated[list[AnyMessage], add_messages]",
        "later": "NotThereYet",
    }
    late = type("Late", (), namespace)
    adapted = adapt_state_schema_for_mode(late, "delta")
    globals()["NotThereYet"] = int
    try:
        assert isinstance(channels(adapted)["messages"], DeltaChannel)
    finally:
        del globals()["NotThereYet"]
    broken = type("Broken", (), {**namespace, "__annotations__": {"messages": "Missing"}})
    with pytest.raises(InvalidConfigError, match=r"Broken\.messages cannot be read.*'Missing'"):
        adapt_state_schema_for_mode(broken, "delta")


def test_threads_that_ask_together_get_one_class() -> None:
    class Fresh(typing_extensions.TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    barrier = Barrier(8)

    def ask(_: int) -> Any:
        barrier.wait()
        return adapt_state_schema_for_mode(Fresh, "delta", 5)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1


def test_the_number_of_kept_schemas_is_bounded() -> None:
    for number in range(module._SCHEMAS + 20):
        schema = typing_extensions.TypedDict(f"S{number}", {"messages": list})  # noqa: UP013
        adapt_state_schema_for_mode(schema, "delta")
    assert module._adapted.cache.currsize == module._SCHEMAS


def test_the_other_reducers_of_the_state_can_be_delta_channels_too() -> None:
    names = sorted(THREAD_STATE_REDUCER_FIELDS)
    found = channels(adapt_state_schema_for_mode(ThreadState, "delta", channels=names))
    assert {n for n, ch in found.items() if isinstance(ch, DeltaChannel)} == set(names)
    assert found["artifacts"] == delta_field(merge_artifacts)
