"""A checkpoint whose delta writes could not be stored is not stored either."""

from __future__ import annotations

import operator
import pickle
import time
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from deerflow_saver import CachedHistorySaver, LostWritesError
from deerflow_saver._failures import FailedWrites
from deerflow_saver.fixes import failed_writes_kept_checkpoint


class DiskFullError(Exception):
    pass


class Failing(InMemorySaver):
    """Cannot store writes to `failing` while that is set."""

    failing: str | None = None

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if any(channel == self.failing for channel, _ in writes):
            time.sleep(0.01)
            raise DiskFullError
        super().put_writes(config, writes, task_id, task_path)


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend)]
    ref: Annotated[list[str], operator.add]


def said(word: str) -> dict[str, list[str]]:
    return {"log": [word], "ref": [word]}


def graph_on(saver: Any) -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("first", lambda _: said("first"))
    builder.add_node("second", lambda _: {"ref": ["second"]})
    builder.add_node("third", lambda _: said("third"))
    for start, end in ((START, "first"), ("first", "second"), ("second", "third"), ("third", END)):
        builder.add_edge(start, end)
    return builder.compile(checkpointer=saver)


every_durability = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
every_guard = pytest.mark.parametrize("guard", ["refuse", "off"])
THREAD: Any = {"configurable": {"thread_id": "thread"}}


def _agree(graph: Any) -> None:
    for snapshot in graph.get_state_history(THREAD):
        assert snapshot.values.get("log", []) == [
            word for word in snapshot.values.get("ref", []) if word != "second"
        ]


@every_durability
@every_guard
def test_no_checkpoint_is_kept_without_its_writes(durability: Any, guard: Any) -> None:
    inner = Failing()
    graph = graph_on(CachedHistorySaver(inner, guard=guard))
    graph.invoke(said("one"), THREAD)
    inner.failing = "log"
    with pytest.raises((DiskFullError, LostWritesError)):
        graph.invoke(said("two"), THREAD, durability=durability)
    inner.failing = None
    _agree(graph)
    _agree(graph_on(inner))
    graph.invoke(said("three"), THREAD, durability=durability)
    _agree(graph)
    assert graph.get_state(THREAD).values["log"][-3:] == ["three", "first", "third"]


@every_durability
def test_the_run_raises_the_savers_own_error(durability: Any) -> None:
    inner = Failing()
    graph = graph_on(CachedHistorySaver(inner))
    inner.failing = "log"
    with pytest.raises((DiskFullError, LostWritesError)) as caught:
        graph.invoke(said("one"), THREAD, durability=durability)
    assert isinstance(caught.value, DiskFullError) or isinstance(
        caught.value.__cause__, DiskFullError
    )


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_writes_to_ordinary_channels_that_fail_refuse_nothing(durability: Any) -> None:
    def outcome(inner: Failing, saver: Any) -> Any:
        inner.failing = "branch:to:third"  # what the second node writes beside `ref`
        graph = graph_on(saver)
        with pytest.raises(DiskFullError):
            graph.invoke(said("one"), THREAD, durability=durability)
        return graph.get_state(THREAD).values

    raw, wrapped = Failing(), Failing()
    assert outcome(raw, raw) == outcome(wrapped, CachedHistorySaver(wrapped))


@pytest.mark.skipif(
    not failed_writes_kept_checkpoint.here(), reason="this LangGraph does not go on"
)
@every_durability
def test_as_released_the_checkpoint_is_kept(durability: Any) -> None:
    inner = Failing()
    graph = graph_on(CachedHistorySaver(inner, fixes="off", guard="off"))
    graph.invoke(said("one"), THREAD)
    inner.failing = "log"
    with pytest.raises(DiskFullError):
        graph.invoke(said("two"), THREAD, durability=durability)
    with pytest.raises(AssertionError):
        _agree(graph)


# -- what is remembered ----------------------------------------------------------------------


def _config(runtime: Any, checkpoint_id: str = "1") -> Any:
    names = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    return {"configurable": {**names, "__pregel_runtime": runtime}}


COUNTED = {"counters_since_delta_snapshot": {"log": (1, 1)}}


def _noted(runtime: Any, *, needed: bool = True) -> FailedWrites:
    failed = FailedWrites(lambda: needed)
    failed.note(_config(runtime), [("log", 1), ("ref", 1)], DiskFullError())
    return failed


def test_a_child_of_the_same_run_is_refused_and_so_is_its_child() -> None:
    runtime = object()
    failed = _noted(runtime)
    with pytest.raises(LostWritesError) as caught:
        failed.refuse(_config(runtime), {"id": "2"}, COUNTED, ())
    assert caught.value.channels == ("log",)
    assert caught.value.checkpoint_id == "1"
    assert isinstance(caught.value.__cause__, DiskFullError)
    with pytest.raises(LostWritesError):
        failed.refuse(_config(runtime, "2"), {"id": "3"}, {}, ())
    with pytest.raises(LostWritesError):
        failed.refuse(_config(runtime, "3"), {"id": "4"}, {}, ())


def test_another_run_may_build_on_the_checkpoint() -> None:
    failed = _noted(object())
    failed.refuse(_config(object()), {"id": "2"}, COUNTED, ())
    failed.refuse(_config(None), {"id": "2"}, COUNTED, ())


def test_a_child_that_stores_the_value_loses_nothing() -> None:
    runtime = object()
    child = {"id": "2", "channel_values": {"log": "whole"}}
    _noted(runtime).refuse(_config(runtime), child, COUNTED, ["log"])


def test_a_channel_known_from_elsewhere_counts_as_delta() -> None:
    runtime = object()
    with pytest.raises(LostWritesError):
        _noted(runtime).refuse(_config(runtime), {"id": "2"}, {}, ["log"])
    _noted(runtime).refuse(_config(runtime), {"id": "2"}, {}, ["other"])


def test_where_langgraph_stops_by_itself_nothing_is_remembered() -> None:
    runtime = object()
    _noted(runtime, needed=False).refuse(_config(runtime), {"id": "2"}, COUNTED, ())


def test_what_is_remembered_is_bounded() -> None:
    runtime = object()
    failed = _noted(runtime)
    for number in range(600):
        failed.note(_config(runtime, f"other-{number}"), [("log", 1)], DiskFullError())
    assert len(failed._failures) == 512


def test_the_error_survives_pickling() -> None:
    error = LostWritesError(
        thread_id="t", checkpoint_ns="ns", checkpoint_id="1", channels=("log", "other")
    )
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.__dict__) == (str(error), error.__dict__)
    assert "log, other" in str(error)
