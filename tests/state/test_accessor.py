"""The accessor in front of stub graphs (what it asks for) and of real ones (what comes back)."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from deerflow_saver import CachedHistorySaver
from deerflow_saver import channel_mode as cm
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state import CheckpointStateAccessor, UnknownStateFieldError
from support.modes import compiled, raw_child, schema, thread, visible
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

INTERNAL, MARKER = cm.INTERNAL_CHECKPOINT_MODE_KEY, cm.CHECKPOINT_MODE_METADATA_KEY
DELTA_ROW = SimpleNamespace(metadata={"counters_since_delta_snapshot": {"log": (1, 1)}})


class StubGraph:
    """Takes note of what it is asked."""

    def __init__(self, *metadata: Any) -> None:
        self.rows = [SimpleNamespace(metadata=m, values={}, config=thread()) for m in metadata]
        self.calls: list[tuple[str, Any, Any]] = []
        self.given = 0

    def get_state(self, config: Any) -> Any:
        self.calls.append(("get_state", config, {}))
        return self.rows[0]

    async def aget_state(self, config: Any) -> Any:
        return self.get_state(config)

    def get_state_history(self, config: Any, **options: Any) -> Iterator[Any]:
        self.calls.append(("get_state_history", config, options))
        for row in self.rows:
            self.given += 1
            yield row

    async def aget_state_history(self, config: Any, **options: Any) -> Any:
        for row in self.get_state_history(config, **options):
            yield row

    def update_state(self, config: Any, values: Any, as_node: Any = None) -> Any:
        self.calls.append(("update_state", config, (values, as_node)))
        return {"configurable": {"checkpoint_id": "new"}}

    async def aupdate_state(self, config: Any, values: Any, as_node: Any = None) -> Any:
        return self.update_state(config, values, as_node)


class StubSaver:
    """Gives one row, and counts."""

    def __init__(self, row: Any = None) -> None:
        self.row = row
        self.fetches = 0

    def get_tuple(self, config: Any) -> Any:
        self.fetches += 1
        return self.row

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    get_delta_channel_history = aget_delta_channel_history = None


def stubbed(*metadata: Any, mode: Any, row: Any = None) -> tuple[Any, StubGraph, StubSaver]:
    graph, saver = StubGraph(*metadata), StubSaver(row)
    return CheckpointStateAccessor(graph, saver, mode), graph, saver


async def each_call(accessor: Any, config: Any) -> None:
    accessor.get(config)
    await accessor.aget(config)
    accessor.history(config, limit=1)
    await accessor.ahistory(config, limit=1)
    accessor.update(config, {"log": ["x"]}, as_node="work")
    await accessor.aupdate(config, {"log": ["x"]}, as_node="work")
    accessor.get_metadata(config)
    await accessor.aget_metadata(config)


@pytest.mark.parametrize("mode", ["full", "delta"])
async def test_the_mode_travels_on_copies_and_forged_keys_are_overwritten(mode: Any) -> None:
    accessor, graph, _ = stubbed({}, mode=mode)
    config: Any = {
        "configurable": {"thread_id": "1", INTERNAL: "forged", MARKER: "forged"},
        "metadata": {MARKER: "forged", "user": "u"},
        "tags": ["t"],
    }
    before = copy.deepcopy(config)
    await each_call(accessor, config)
    assert config == before
    assert len(graph.calls) == 6
    for _, forwarded, _ in graph.calls:
        assert forwarded["configurable"] == {"thread_id": "1", INTERNAL: mode}
        marked = {MARKER: "delta"} if mode == "delta" else {}
        assert forwarded["metadata"] == {"user": "u", **marked}
        assert forwarded["configurable"] is not config["configurable"]
        assert forwarded["metadata"] is not config["metadata"]


async def test_a_full_write_costs_one_fetch_and_a_read_none() -> None:
    accessor, graph, saver = stubbed({}, mode="full")
    accessor.get(thread())
    await accessor.ahistory(thread())
    assert saver.fetches == 0
    accessor.update(thread(), {"log": []}, as_node="n")
    assert saver.fetches == 1
    await accessor.aupdate(thread(), {"log": []})
    assert saver.fetches == 2
    assert graph.calls[-2][2] == ({"log": []}, "n")


async def test_a_delta_write_costs_no_fetch() -> None:
    accessor, _, saver = stubbed({}, mode="delta", row=DELTA_ROW)
    accessor.update(thread(), {})
    await accessor.aupdate(thread(), {})
    assert saver.fetches == 0


async def test_the_gate_raises_before_the_graph_writes() -> None:
    accessor, graph, _ = stubbed({}, mode="full", row=DELTA_ROW)
    with pytest.raises(cm.CheckpointModeMismatchError):
        accessor.update(thread(), {})
    with pytest.raises(cm.CheckpointModeMismatchError):
        await accessor.aupdate(thread(), {})
    with pytest.raises(cm.CheckpointModeMismatchError):
        accessor.get_metadata(thread())
    assert graph.calls == []


async def test_a_marked_snapshot_raises_wherever_it_stands_in_a_history() -> None:
    accessor, graph, _ = stubbed({}, {MARKER: "delta"}, {}, mode="full")
    with pytest.raises(cm.CheckpointModeMismatchError):
        accessor.history(thread())
    with pytest.raises(cm.CheckpointModeMismatchError):
        await accessor.ahistory(thread())
    assert graph.given == 4
    assert len(accessor.history(thread(), limit=1)) == 1


@pytest.mark.parametrize("limit", [0, -1])
async def test_no_snapshot_is_consumed_for_a_limit_of_none_at_all(limit: int) -> None:
    accessor, graph, saver = stubbed({}, {}, mode="full")
    assert accessor.history(thread(), limit=limit) == []
    assert await accessor.ahistory(thread(), limit=limit) == []
    assert (graph.calls, saver.fetches) == ([], 0)


async def test_a_limit_is_passed_on_and_kept_and_none_means_all() -> None:
    accessor, graph, _ = stubbed({}, {}, {}, mode="full")
    assert len(accessor.history(thread(), limit=2)) == 2
    assert graph.given == 2
    assert graph.calls[-1][2] == {"limit": 2}
    assert len(await accessor.ahistory(thread())) == 3
    assert graph.calls[-1][2] == {"limit": None}


def test_binding_leaves_the_graph_as_it_is() -> None:
    shared = compiled("full")
    one, other, store = InMemorySaver(), InMemorySaver(), InMemoryStore()
    first = CheckpointStateAccessor.bind(shared, one, store=store)
    second = CheckpointStateAccessor.bind(shared, other, mode="full")
    first.update(thread(), {"log": ["one"]}, as_node="work")
    second.update(thread(), {"log": ["other"]}, as_node="work")
    assert (shared.checkpointer, shared.store) == (None, None)
    assert (first.graph.checkpointer, first.graph.store) == (one, store)
    assert first.get(thread()).values["log"] == ["one"]
    assert second.get(thread()).values["log"] == ["other"]


def test_binding_takes_the_frozen_mode_and_contradicts_none() -> None:
    with cm.thawed():
        assert CheckpointStateAccessor.bind(compiled("full"), InMemorySaver()).mode == "full"
        cm.freeze("delta")
        assert CheckpointStateAccessor.bind(compiled("delta"), InMemorySaver()).mode == "delta"
        with pytest.raises(cm.CheckpointModeReconfigurationError):
            CheckpointStateAccessor.bind(compiled("full"), InMemorySaver(), mode="full")
        with pytest.raises(cm.CheckpointModeReconfigurationError):
            CheckpointStateAccessor(compiled("full"), InMemorySaver(), "full")
    with pytest.raises(InvalidConfigError):
        CheckpointStateAccessor(compiled("full"), InMemorySaver(), "half")  # type: ignore[arg-type]


def bound(mode: Any, saver: Any, frequency: int = 3) -> CheckpointStateAccessor:
    return CheckpointStateAccessor.bind(compiled(mode, None, frequency), saver, mode=mode)


def _delta_thread(saver: Any, kind: str) -> None:
    graph = compiled("delta", saver, 1 if kind == "snapshot" else 50)
    config = cm.with_checkpoint_mode(thread(), "delta") if kind == "marked" else thread()
    graph.update_state(config, {"log": ["a"], "facts": {"a": 1}, "tags": {"a"}}, "work")
    graph.update_state(config, {"log": ["b"], "facts": {"b": 1}, "tags": {"b"}}, "work")
    if kind in {"lost", "other name"}:
        raw_child(saver, thread())


KINDS = ("marked", "unmarked", "snapshot", "lost", "other name")
every_kind = pytest.mark.parametrize("kind", KINDS)


class Other(TypedDict, total=False):
    """The state of a full process that knows none of the delta thread's channels."""

    messages: list[str]


def other_graph() -> Any:
    builder: Any = StateGraph(Other)
    builder.add_node("work", lambda _: {"messages": ["x"]})
    builder.add_edge(START, "work")
    return builder.compile()


def full_accessor(saver: Any, kind: str) -> CheckpointStateAccessor:
    graph = other_graph() if kind == "other name" else compiled("full")
    return CheckpointStateAccessor.bind(graph, saver, mode="full")


def _dump(saver: Any) -> list[Any]:
    return [(r.config, r.checkpoint, r.metadata, r.pending_writes) for r in saver.list(None)]


@every_kind
@every_sync_case
def test_a_full_process_neither_reads_nor_writes_a_delta_thread(
    case: SaverCase, storage: Storage, kind: str
) -> None:
    with case.open(storage) as saver:
        _delta_thread(saver, kind)
        accessor, before = full_accessor(saver, kind), _dump(saver)
        values: Any = {"messages": ["x"]} if kind == "other name" else {"log": ["x"]}
        calls: list[Any] = [
            lambda: accessor.get(thread()),
            lambda: accessor.history(thread()),
            lambda: accessor.history(thread(), limit=1),
            lambda: accessor.get_metadata(thread()),
            lambda: accessor.update(thread(), values, as_node="work"),
            lambda: accessor.replace(thread(), values),
        ]
        for call in calls:
            with pytest.raises(cm.CheckpointModeMismatchError) as caught:
                call()
            assert caught.value.thread_id == "1"
        assert _dump(saver) == before


@every_kind
@every_async_case
async def test_nor_does_it_on_the_async_face(case: SaverCase, storage: Storage, kind: str) -> None:
    async with case.aopen(storage) as saver:
        graph = compiled("delta", saver, 1 if kind == "snapshot" else 50)
        config = cm.with_checkpoint_mode(thread(), "delta") if kind == "marked" else thread()
        for name in "ab":
            update: Any = {"log": [name], "facts": {name: 1}, "tags": {name}}
            await graph.aupdate_state(config, update, "work")
        if kind in {"lost", "other name"}:
            head: Any = await saver.aget_tuple(thread())
            child = {**head.checkpoint, "id": head.checkpoint["id"][:-1] + "~"}
            await saver.aput(head.config, child, {"source": "update", "step": 9}, {})
        accessor = full_accessor(saver, kind)
        before = [row async for row in saver.alist(thread())]
        values: Any = {"messages": ["x"]} if kind == "other name" else {"log": ["x"]}
        calls: list[Any] = [
            lambda: accessor.aget(thread()),
            lambda: accessor.ahistory(thread()),
            lambda: accessor.aget_metadata(thread()),
            lambda: accessor.aupdate(thread(), values, as_node="work"),
            lambda: accessor.areplace(thread(), values),
        ]
        for call in calls:
            with pytest.raises(cm.CheckpointModeMismatchError):
                await call()
        assert [row async for row in saver.alist(thread())] == before


class CountingSaver(InMemorySaver):
    """Counts what is read of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def get_tuple(self, config: Any) -> Any:
        self.reads.append("get_tuple")
        return super().get_tuple(config)

    def list(self, config: Any, **options: Any) -> Any:
        self.reads.append(f"list {options['limit']}")
        yield from super().list(config, **options)

    def get_delta_channel_history(self, **asked: Any) -> Any:
        self.reads.append("history")
        return super().get_delta_channel_history(**asked)


def test_reads_of_a_real_graph_fetch_once() -> None:
    saver = CountingSaver()
    accessor = bound("full", saver)
    for _ in range(3):
        accessor.graph.invoke({"log": ["in"]}, thread())
    saver.reads.clear()
    accessor.get(thread())
    assert saver.reads == ["get_tuple"]
    saver.reads.clear()
    assert accessor.get_metadata(thread()) is not None
    assert saver.reads == ["get_tuple"]
    saver.reads.clear()
    assert len(accessor.history(thread(), limit=4)) == 4
    assert saver.reads == ["list 4"]


def test_metadata_of_no_checkpoint_is_none_and_of_one_its_own_copy() -> None:
    saver = InMemorySaver()
    accessor = bound("delta", saver)
    assert accessor.get_metadata(thread()) is None
    config = accessor.update(thread(), {"log": ["a"]}, as_node="work")
    metadata = accessor.get_metadata(config)
    assert metadata is not None
    assert metadata[MARKER] == "delta"
    metadata.clear()
    assert accessor.get_metadata(config)


@pytest.mark.parametrize("mode", ["full", "delta"])
@every_sync_case
def test_pages_go_on_where_the_last_one_ended(case: SaverCase, storage: Storage, mode: Any) -> None:
    with case.open(storage) as saver:
        accessor = bound(mode, saver)
        for number in range(7):
            accessor.update(thread(), {"log": [str(number)]}, as_node="work")
        everything = accessor.history(thread())
        pages: list[Any] = []
        before: Any = None
        while page := accessor.history(thread(), limit=3, before=before):
            pages.extend(page)
            last = page[-1].config
            before = last if len(pages) == 3 else last["configurable"]["checkpoint_id"]
        assert pages == everything
        assert [len(s.values.get("log", ())) for s in pages][:7] == list(range(7, 0, -1))
        chosen = accessor.history(thread(), filter={"step": 2})
        assert [s.metadata["step"] for s in chosen] == [2]  # type: ignore[index,typeddict-item]


def test_fields_the_graph_does_not_have_are_refused_by_name() -> None:
    accessor = bound("delta", InMemorySaver())
    for write in (accessor.update, accessor.replace):
        with pytest.raises(UnknownStateFieldError) as caught:
            write(thread(), {"zeta": 1, "log": [], "alpha": 2}, as_node="work")
        assert str(caught.value) == "Unknown thread-state field(s): alpha, zeta"
        assert caught.value.fields == ("alpha", "zeta")
    with pytest.raises(UnknownStateFieldError, match="omega"):
        accessor.update(thread(), Command(update={"omega": 1}), as_node="work")
    assert accessor.history(thread()) == []


@pytest.mark.parametrize("section", ["configurable", "metadata"])
@pytest.mark.parametrize("key", ["deerflow_delta_channels", "counters_since_delta_snapshot"])
@pytest.mark.parametrize("mode", ["full", "delta"])
def test_a_request_cannot_make_a_thread_unreadable(mode: Any, key: str, section: str) -> None:
    accessor = bound(mode, CachedHistorySaver(InMemorySaver()))
    config: Any = thread()
    config.setdefault(section, {})[key] = "log"
    for _ in range(2):
        accessor.update(config, {"log": ["x"]}, as_node="work")
    assert accessor.get(thread()).values["log"] == ["x", "x"]


@every_async_case
async def test_a_full_process_makes_no_delta_thread(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as saver:
        accessor = CheckpointStateAccessor.bind(compiled("delta"), saver, mode="full")
        for write in (accessor.aupdate, accessor.areplace):
            with pytest.raises(InvalidConfigError, match=r"delta channels \(facts, log, tags\)"):
                await write(thread(), {"log": ["x"]}, as_node="work")
        assert await saver.aget_tuple(thread()) is None


@pytest.mark.parametrize("before", ["", {}, thread()])
async def test_a_page_begins_at_a_checkpoint_or_not_at_all(before: Any) -> None:
    accessor = bound("delta", InMemorySaver())
    with pytest.raises(InvalidConfigError, match="before must name a checkpoint"):
        accessor.history(thread(), before=before)
    with pytest.raises(InvalidConfigError, match="before must name a checkpoint"):
        await accessor.ahistory(thread(), before=before)


@dataclass
class Unfit:
    """A state object with a field too many."""

    log: list[str]
    omega: str | None


class UnfitModel(BaseModel):
    """A model with a field too many."""

    title: str = "t"
    omega: str = "default"


@pytest.mark.parametrize(
    "values",
    [
        Command(update=[("omega", 1)]),
        Command(update=(("log", []), ("omega", 1))),
        [Command(update={"omega": 1})],
        [{"omega": 1}, Command(update={"log": []})],
        Unfit([], "x"),
        Command(update=Unfit([], "x")),
        UnfitModel(omega="x"),
        {"omega": 1, "branch:to:ask": None},
    ],
    ids=repr,
)
def test_an_unknown_field_is_refused_in_whatever_form_it_comes(values: Any) -> None:
    accessor = bound("delta", InMemorySaver())
    with pytest.raises(UnknownStateFieldError, match="omega"):
        accessor.update(thread(), values, as_node="work")
    assert accessor.history(thread()) == []


def test_a_key_that_is_no_name_is_an_unknown_field() -> None:
    with pytest.raises(UnknownStateFieldError, match="1"):
        bound("full", InMemorySaver()).update(thread(), {1: "x"}, as_node="work")


@pytest.mark.parametrize(
    "values",
    [
        Command(update=[("log", ["x"]), ("title", "t")]),
        [Command(update={"log": ["x"]}), {"title": "t"}],
        Unfit(["x"], None),
        UnfitModel(title="t"),
    ],
    ids=repr,
)
def test_fields_that_are_known_pass_in_every_form(values: Any) -> None:
    accessor = bound("delta", InMemorySaver())
    accessor.update(thread(), values, as_node="work")
    found = accessor.get(thread()).values
    assert "omega" not in found
    assert found.get("title") == "t" or found["log"] == ["x"]


@pytest.mark.parametrize("outer", ["full", "delta"])
@pytest.mark.parametrize("inner", ["full", "delta"])
def test_a_call_from_inside_a_run_keeps_its_own_mode(outer: Any, inner: Any) -> None:
    """An agent may look after another thread from one of its nodes."""
    saver = InMemorySaver()
    accessor = bound(inner, saver)

    def node(state: Any) -> dict[str, Any]:
        accessor.update(thread("other"), {"log": ["a"]}, as_node="work")
        accessor.replace(thread("other"), {"log": ["b"]})
        assert accessor.get(thread("other")).values["log"] == ["b"]
        return {"log": ["done"]}

    builder = StateGraph(schema(outer))
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, cm.with_checkpoint_mode(thread("outer"), outer))
    marks = {row.metadata.get(MARKER) for row in saver.list(None)}
    assert marks == {"delta" if inner == "delta" else None}
    outside = {
        row.metadata.get(MARKER)
        for row in graph.checkpointer.list(None)  # type: ignore[union-attr]
    }
    assert outside == {"delta" if outer == "delta" else None}


def test_a_mark_bound_to_the_graph_itself_is_overruled() -> None:
    saver = InMemorySaver()
    graph = compiled("full").with_config({"metadata": {MARKER: "delta", "team": "a"}})
    accessor = CheckpointStateAccessor.bind(graph, saver, mode="full")
    config = accessor.update(thread(), {"log": ["a"]}, as_node="work")
    metadata = accessor.get_metadata(config)
    assert metadata is not None
    assert MARKER not in metadata
    assert metadata["team"] == "a"


@pytest.mark.parametrize("mode", ["full", "delta"])
def test_it_works_through_the_wrapper(mode: Any) -> None:
    saver = CachedHistorySaver(InMemorySaver())
    accessor = bound(mode, saver)
    accessor.graph.invoke({"log": ["in"]}, cm.with_checkpoint_mode(thread(), mode))
    accessor.update(thread(), {"log": ["more"]}, as_node="work")
    accessor.replace(thread(), {"facts": {"only": 1}})
    assert visible(accessor.get(thread()))["log"] == ["in", "work 1", "more"]
    assert accessor.get(thread()).values["facts"] == {"only": 1}
    assert len(accessor.history(thread(), limit=2)) == 2


@pytest.mark.parametrize("mode", ["full", "delta"])
@every_sync_case
def test_snapshots_are_the_graphs_own_and_carry_no_mode(
    case: SaverCase, storage: Storage, mode: Any
) -> None:
    with case.open(storage) as saver:
        accessor = bound(mode, saver)
        for _ in range(2):
            accessor.graph.invoke({"log": ["in"]}, thread())
        plain = compiled(mode, saver)
        states = accessor.history(thread())
        assert states == list(plain.get_state_history(thread()))
        for state in states:
            assert accessor.get(state.config) == plain.get_state(state.config)
        assert accessor.get(thread()) == plain.get_state(thread())
        assert accessor.get(thread("none")) == plain.get_state(thread("none"))


def test_types_of_the_application_are_kept_under_a_strict_allowlist() -> None:
    """SQLite stores every value of a checkpoint anew, as it was decoded."""
    tests = Path(__file__).parents[1]
    env = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true", "PYTHONPATH": str(tests)}
    run = subprocess.run(
        [sys.executable, str(tests / "state" / "strict_accessor.py")],
        env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    out = json.loads(run.stdout)
    assert out.pop("strict") is True
    state = "{'log': [Note(text='step'), Note(text='set')], 'note': Note(text='note'), "
    assert set(out) == {"full memory", "full sqlite", "delta memory", "delta sqlite"}
    assert set(out.values()) == {f"[{state}'title': 'set'}}, {state}'title': 'set'}}]"}
