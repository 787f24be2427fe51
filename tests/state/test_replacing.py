"""Writes that set: the same in both modes, whatever the channel merges and the head still owns."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from deerflow_saver import CachedHistorySaver, NonHeadWriteError, fixes
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state import (
    CheckpointStateAccessor,
    build_state_mutation_graph,
    graph_reducer_channels,
    graph_state_schema,
    graph_writable_channels,
)
from deerflow_saver.state.mutation import mutation_graph_of
from support.modes import compiled, schema, thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

both_modes = pytest.mark.parametrize("mode", ["full", "delta"])


def bound(mode: Any, saver: Any, graph: Any = None, **options: Any) -> CheckpointStateAccessor:
    return CheckpointStateAccessor.bind(graph or compiled(mode, **options), saver, mode=mode)


SET: dict[str, Any] = {"log": ["set"], "facts": {"set": 1}, "tags": {"set"}, "title": "set"}


@both_modes
@every_sync_case
def test_channels_of_any_kind_are_set_and_the_others_stay(
    case: SaverCase, storage: Storage, mode: Any
) -> None:
    with case.open(storage) as saver:
        accessor = bound(mode, saver)
        accessor.graph.invoke({"log": ["in"]}, thread())
        before = accessor.get(thread())
        for name, value in SET.items():
            config = accessor.replace(thread(), {name: value})
            state = accessor.get(config)
            assert state.values[name] == value
            assert state.next == ()
            assert state.metadata is not None
            assert state.metadata["source"] == "update"
        settled = accessor.get(thread())
        assert {k: v for k, v in settled.values.items() if k != "hint"} == SET
        assert len(accessor.history(thread())) == 3 + len(SET)
        assert accessor.get(before.config).values["log"] == before.values["log"]
        accessor.update(thread(), {"log": ["more"]}, as_node="work")
        assert accessor.get(thread()).values["log"] == ["set", "more"]


@both_modes
@every_async_case
async def test_the_async_face_sets_the_same(case: SaverCase, storage: Storage, mode: Any) -> None:
    async with case.aopen(storage) as saver:
        accessor = bound(mode, saver)
        await accessor.graph.ainvoke({"log": ["in"]}, thread())
        config = await accessor.areplace(thread(), SET)
        values = (await accessor.aget(config)).values
        assert {k: v for k, v in values.items() if k != "hint"} == SET


@both_modes
@every_sync_case
def test_what_finished_tasks_wrote_is_kept_and_comes_back_in_no_channel_that_is_set(
    case: SaverCase, storage: Storage, mode: Any
) -> None:
    """The head of an interrupted step owns the writes of the tasks that are done."""
    with case.open(storage) as saver:
        accessor = bound(mode, saver)
        accessor.graph.invoke({"log": ["in"], "do": "ask"}, thread())
        paused = accessor.get(thread())
        assert paused.next == ("ask",)
        assert paused.values["log"] == ["in", "work 1"]
        config = accessor.replace(thread(), {"facts": {"set": 1}})
        for place in (config, thread()):
            state = accessor.get(place)
            assert state.values["facts"] == {"set": 1}
            assert state.values["log"] == ["in", "work 1"]
            assert state.values["tags"] == {"t1"}
            assert (state.next, state.interrupts) == ((), ())
        accessor.update(thread(), {"facts": {"more": 2}}, as_node="work")
        assert accessor.get(thread()).values["facts"] == {"set": 1, "more": 2}


def test_an_older_checkpoint_is_set_as_it_was_recorded() -> None:
    """What its tasks wrote afterwards belongs to its child."""
    accessor = bound("full", InMemorySaver())
    accessor.graph.invoke({"log": ["in"], "do": "ask"}, thread())
    paused = accessor.get(thread()).config
    accessor.graph.invoke(Command(resume="yes"), thread())
    after = accessor.get(thread())
    config = accessor.replace(paused, {"title": "set"})
    assert accessor.get(config).values["log"] == ["in"]
    assert accessor.get(config).values["title"] == "set"
    assert accessor.get(after.config).values == after.values


def test_behind_a_guard_a_delta_thread_is_set_at_its_head_only() -> None:
    accessor = bound("delta", CachedHistorySaver(InMemorySaver()))
    accessor.graph.invoke({"log": ["in"], "do": "ask"}, thread())
    older = accessor.history(thread())[-1].config
    with pytest.raises(NonHeadWriteError):
        accessor.replace(older, {"log": []})
    accessor.replace(thread(), {"log": []})
    assert accessor.get(thread()).values["log"] == []
    assert accessor.get(thread()).values["facts"] == {"k1": 1}


@both_modes
def test_a_thread_may_begin_with_what_is_set(mode: Any) -> None:
    accessor = bound(mode, InMemorySaver())
    accessor.replace(thread(), SET)
    assert accessor.get(thread()).values == SET
    accessor.graph.invoke({"log": ["in"]}, thread())
    assert accessor.get(thread()).values["log"] == ["set", "in", "work 2"]


def test_a_value_that_is_an_overwrite_is_not_wrapped_again() -> None:
    accessor = bound("full", InMemorySaver())
    for _ in range(2):
        accessor.replace(thread(), {"log": Overwrite(["one"])})
    assert accessor.get(thread()).values["log"] == ["one"]


class Unions(TypedDict, total=False):
    """A reducer channel of a union has no value to begin with."""

    goal: Annotated[dict[str, Any] | None, lambda old, new: {**(old or {}), **(new or {})}]


def test_an_empty_reducer_channel_takes_the_plain_value() -> None:
    builder: Any = StateGraph(Unions)
    builder.add_node("work", lambda _: {})
    builder.add_edge(START, "work")
    accessor = bound("full", InMemorySaver(), builder.compile())
    for goal in ({"a": 1}, {"b": 2}):
        accessor.replace(thread(), {"goal": goal})
        assert accessor.get(thread()).values == {"goal": goal}
    assert accessor.checkpointer.get_tuple(thread()).checkpoint["channel_values"]["goal"] == {
        "b": 2
    }


def extend(current: list[str], writes: list[list[str]]) -> list[str]:
    return [*current, *itertools.chain(*writes)]


@dataclass
class AsDataclass:
    """The state as a dataclass."""

    log: Annotated[list[str], DeltaChannel(extend)] = field(default_factory=list)
    title: str = "untitled"


class AsModel(BaseModel):
    """The state as a pydantic model."""

    log: Annotated[list[str], DeltaChannel(extend)] = []
    title: str = "untitled"


@pytest.fixture
def json_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """An `Overwrite` that went through JSON is one on every release."""
    monkeypatch.delenv("DEERFLOW_SAVER_FIXES", raising=False)
    fixes.apply(["overwrite-json-form"])


SPELLINGS: list[Any] = [
    Overwrite({"a": 1}),
    {"__overwrite__": {"a": 1}},
    {"type": "__overwrite__", "value": {"a": 1}},
]


@both_modes
@pytest.mark.usefixtures("json_form")
@pytest.mark.parametrize("value", SPELLINGS, ids=["object", "sentinel", "erased"])
def test_an_overwrite_sets_what_it_holds_in_each_of_its_forms(mode: Any, value: Any) -> None:
    accessor = bound(mode, InMemorySaver())
    for before in ({}, {"b": 2}):
        accessor.replace(thread(), {"facts": before})
        accessor.replace(thread(), {"facts": value})
        assert accessor.get(thread()).values["facts"] == {"a": 1}


@pytest.mark.usefixtures("json_form")
@pytest.mark.parametrize("value", SPELLINGS, ids=["object", "sentinel", "erased"])
def test_an_empty_reducer_channel_of_a_union_holds_no_wrapper(value: Any) -> None:
    builder: Any = StateGraph(Unions)
    builder.add_node("work", lambda _: {})
    builder.add_edge(START, "work")
    accessor = bound("full", InMemorySaver(), builder.compile())
    for _ in range(2):
        accessor.replace(thread(), {"goal": value})
        assert accessor.get(thread()).values == {"goal": {"a": 1}}


def test_a_channel_without_a_reducer_is_set_to_what_an_overwrite_holds() -> None:
    accessor = bound("full", InMemorySaver())
    accessor.replace(thread(), {"title": Overwrite("t")})
    assert accessor.get(thread()).values["title"] == "t"
    accessor.replace(thread(), {"title": {"__overwrite__": "data"}})
    assert accessor.get(thread()).values["title"] == {"__overwrite__": "data"}


@both_modes
@pytest.mark.parametrize(
    ("values", "as_node", "error"),
    [
        ({"title": "t"}, "", "as_node is required"),
        ({"title": "t"}, "__start__", "as_node '__start__' is no name"),
        ({"title": "t"}, "__copy__", "as_node '__copy__' is no name"),
        ({"title": "t"}, "a|b", "is no name for a node"),
        (None, "edit", "replace needs a mapping"),
        ({"title": lambda: None}, "edit", "serializable"),
    ],
    ids=["no node", "start", "copy", "separator", "no mapping", "unserialisable"],
)
def test_a_replacement_that_cannot_be_made_leaves_the_interrupt(
    mode: Any, values: Any, as_node: str, error: str
) -> None:
    accessor = bound(mode, InMemorySaver())
    accessor.graph.invoke({"log": ["in"], "do": "ask"}, thread())
    before = accessor.history(thread())
    with pytest.raises((ValueError, TypeError), match=error):
        accessor.replace(thread(), values, as_node=as_node)
    assert accessor.history(thread()) == before
    assert accessor.get(thread()).next == ("ask",)


@pytest.mark.parametrize("state", [AsDataclass, AsModel], ids=["dataclass", "pydantic"])
def test_schemas_of_other_kinds_are_read_updated_and_set(state: Any) -> None:
    builder: Any = StateGraph(state)
    builder.add_node("work", lambda s: {"log": [f"{s.title} {len(s.log)}"]})
    builder.add_edge(START, "work")
    accessor = bound("delta", InMemorySaver(), builder.compile())
    assert graph_state_schema(accessor.graph) is state
    accessor.graph.invoke({"log": ["in"]}, thread())
    accessor.update(thread(), {"log": ["more"]}, as_node="work")
    assert accessor.get(thread()).values["log"] == ["in", "untitled 1", "more"]
    accessor.replace(thread(), {"log": ["set"], "title": "t"})
    accessor.graph.invoke({"log": ["again"]}, thread())
    assert accessor.get(thread()).values == {"log": ["set", "again", "t 2"], "title": "t"}


@both_modes
@every_sync_case
def test_a_subgraphs_namespace_is_read_updated_and_set(
    case: SaverCase, storage: Storage, mode: Any
) -> None:
    child: Any = StateGraph(schema(mode))
    child.add_node("ask", lambda _: {"log": [f"child {interrupt('?')}"]})
    child.add_edge(START, "ask")
    parent: Any = StateGraph(schema(mode))
    parent.add_node("child", child.compile(checkpointer=True))
    parent.add_edge(START, "child")
    with case.open(storage) as saver:
        accessor = bound(mode, saver, parent.compile())
        accessor.graph.invoke({"log": ["in"]}, thread())
        inside = thread(checkpoint_ns="child")
        assert accessor.get(inside).values["log"] == ["in"]
        accessor.update(inside, {"facts": {"a": 1}}, as_node="ask")
        accessor.replace(inside, {"log": ["set"], "tags": {"t"}})
        state = accessor.get(inside)
        assert state.values["log"] == ["set"]
        assert state.values["facts"] == {"a": 1}
        assert accessor.get(thread()).values["log"] == ["in"]
        assert accessor.history(inside, limit=1)[0].values == state.values
        assert accessor.get(state.config).values == state.values
        assert not any(name.startswith("__") for name in state.config["configurable"])


@both_modes
@pytest.mark.parametrize("per_thread", [True, None])
def test_states_of_paused_subgraphs_come_with_their_values(mode: Any, per_thread: Any) -> None:
    """Two levels down, by a config that names the task as well as by the states of tasks."""
    graph: Any = None
    for name in ("leaf", "child", "root"):
        builder: Any = StateGraph(schema(mode))
        if graph is None:
            builder.add_node("ask", lambda _: {"log": [f"leaf {interrupt('?')}"]})
            builder.add_edge(START, "ask")
        else:
            builder.add_node("inner", graph)
            builder.add_edge(START, "inner")
        graph = builder.compile(checkpointer=None if name == "root" else per_thread)
    accessor = bound(mode, InMemorySaver(), graph)
    accessor.graph.invoke({"log": ["in"]}, thread())
    state = accessor.get(thread(), subgraphs=True)
    for _ in range(2):
        (task,) = state.tasks
        inside: Any = task.state
        assert inside.values["log"] == ["in"]
        assert accessor.get(inside.config).values == inside.values
        state = inside
    assert state.next == ("ask",)
    assert accessor.get(thread()).tasks[0].state.keys() == {"configurable"}  # type: ignore[union-attr]


class Private(TypedDict, total=False):
    """A channel only one node knows."""

    secret: Annotated[list[str], operator.add]


def test_private_channels_of_nodes_are_set_too() -> None:
    def work(state: Private) -> dict[str, Any]:
        return {"secret": ["w"]}

    builder: Any = StateGraph(schema("full"))
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    graph = builder.compile()
    accessor = bound("full", InMemorySaver(), graph)
    accessor.graph.invoke({"log": ["in"]}, thread())
    accessor.replace(thread(), {"secret": ["s"]})
    assert accessor.get(thread()).values["secret"] == ["s"]
    assert graph_writable_channels(graph) == {
        "log", "facts", "tags", "title", "hint", "do", "secret",
    }  # fmt: skip
    assert graph_reducer_channels(graph) == {"log", "facts", "tags", "secret"}


def test_graphs_without_a_table_have_no_names() -> None:
    class Bare:
        channels: Any

    assert graph_writable_channels(Bare()) is None
    assert graph_reducer_channels(Bare()) is None
    assert graph_state_schema(Bare()) is None
    bare = Bare()
    bare.channels = {}
    assert graph_writable_channels(bare) is None
    assert graph_reducer_channels(bare) == frozenset()


def test_a_mutation_graph_needs_a_node_to_name() -> None:
    with pytest.raises(ValueError, match=r"^as_node is required for checkpoint state mutation$"):
        build_state_mutation_graph("", "delta")
    with pytest.raises(InvalidConfigError):
        mutation_graph_of({}, "")
    with pytest.raises(InvalidConfigError, match="must be 'full' or 'delta'"):
        build_state_mutation_graph("edit", "both")  # type: ignore[arg-type]


def test_a_mutation_graph_has_the_cadence_asked_for() -> None:
    default = build_state_mutation_graph("edit", "delta").channels["messages"]
    asked = build_state_mutation_graph("edit", "delta", snapshot_frequency=250).channels["messages"]
    assert (default.snapshot_frequency, asked.snapshot_frequency) == (10, 250)
    full = build_state_mutation_graph("edit", "full")
    assert not isinstance(full.channels["messages"], DeltaChannel)
    assert full.checkpointer is None


@both_modes
def test_on_savers_that_store_channels_apart_those_it_does_not_know_keep_their_values(
    mode: Any,
) -> None:
    class Part(TypedDict, total=False):
        title: str

    saver = InMemorySaver()
    graph = compiled(mode, saver)
    graph.invoke({"log": ["in"]}, thread())
    before = graph.get_state(thread()).values
    edit = build_state_mutation_graph("edit", mode, Part)
    edit.checkpointer = saver
    edit.update_state(thread(), {"title": "edited"}, as_node="edit")
    after = graph.get_state(thread())
    assert after.next == ()
    kept = ("log", "facts", "tags")
    assert {n: after.values[n] for n in kept} == {n: before[n] for n in kept}
    assert after.values["title"] == "edited"


def test_a_mutation_graph_of_a_table_has_the_same_channels() -> None:
    graph = compiled("delta", None, 7)
    made = mutation_graph_of(graph.channels, "edit")
    assert graph_writable_channels(made) == graph_writable_channels(graph)
    for name in ("log", "facts", "tags"):
        assert made.channels[name] == graph.channels[name]
        assert made.channels[name].typ is not list or name == "log"
    assert END in made.get_graph().nodes
