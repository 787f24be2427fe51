"""Questions and failures inside subgraphs come back with the state of the subgraph."""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import (
    CheckpointStateAccessor,
    RollbackError,
    acapture_rollback_point,
    arestore,
    capture_rollback_point,
    restore,
)
from support.agent_in_modes import extend
from support.modes import thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case


class Stopped(Exception):  # noqa: N818
    """The outer graph was stopped."""


def _schema(mode: str) -> Any:
    reducer: Any = DeltaChannel(extend) if mode == "delta" else operator.add
    return TypedDict("Nested", {"log": Annotated[list[str], reducer]}, total=False)  # type: ignore[operator]


def _last(state: Any) -> Any:
    if "stop" in state["log"][-1]:
        raise Stopped
    return {"log": ["last"]}


def _chain(mode: str, *nodes: tuple[str, Any], **options: Any) -> Any:
    builder: Any = StateGraph(_schema(mode))
    before = START
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder.compile(**options)


def nested(mode: str, depth: int, saver: Any, ran: list[str], **options: Any) -> Any:
    """A graph with a subgraph, `depth` deep, that works and then asks twice."""

    def work(_: Any) -> Any:
        ran.append("work")
        return {"log": ["work"]}

    asking = [
        ("work", work),
        ("first", lambda _: {"log": [f"first {interrupt('first?')}"]}),
        ("second", lambda _: {"log": [f"second {interrupt('second?')}"]}),
    ]
    graph = _chain(mode, *asking, **options)
    for _ in range(depth - 1):
        graph = _chain(mode, ("before", lambda _: {"log": ["before"]}), ("inner", graph))
    return _chain(mode, ("inner", graph), ("last", _last), checkpointer=saver)


def told(state: Any) -> Any:
    """A state with those inside, without ids."""
    inside = [
        (task.name, [asked.value for asked in task.interrupts], task.state and told(task.state))
        for task in state.tasks
    ]
    return state.values, state.next, inside, [asked.value for asked in state.interrupts]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mode", ["full", "delta"])
@every_sync_case
def test_a_question_of_a_subgraph_waits_again_and_only_what_follows_it_runs(
    case: SaverCase, storage: Storage, mode: str, depth: int
) -> None:
    with case.open(storage) as saver:
        ran: list[str] = []
        wrapped = CachedHistorySaver(saver)
        graph = nested(mode, depth, wrapped, ran)
        accessor = CheckpointStateAccessor(graph, wrapped, mode)  # type: ignore[arg-type]
        graph.invoke({"log": ["in"]}, thread())
        graph.invoke(Command(resume="a"), thread())
        before = told(accessor.get(thread(), subgraphs=True))
        assert before[3] == ["second?"]
        point = capture_rollback_point(accessor, thread())
        with pytest.raises(Stopped):
            graph.invoke(Command(resume="stop"), thread())
        assert told(accessor.get(thread(), subgraphs=True)) != before
        assert restore(accessor, point)
        assert told(accessor.get(thread(), subgraphs=True)) == before
        assert restore(accessor, point)
    with case.open(storage) as saver:
        graph = nested(mode, depth, saver, ran)
        asked = graph.get_state(thread()).interrupts
        out = graph.invoke(Command(resume={asked[0].id: "b"}), thread())
        assert out["log"][-4:] == ["work", "first a", "second b", "last"]
        assert ran == ["work"]


@pytest.mark.parametrize("mode", ["full", "delta"])
def test_a_subgraph_that_went_on_below_an_untouched_head_is_taken_back(mode: Any) -> None:
    """Answers by id leave no trace on the head of the graph above."""
    graph = nested(mode, 1, InMemorySaver(), [])
    accessor = CheckpointStateAccessor(graph, graph.checkpointer, mode)
    graph.invoke({"log": ["in"]}, thread())
    before = told(accessor.get(thread(), subgraphs=True))
    point = capture_rollback_point(accessor, thread())
    asked = graph.get_state(thread()).interrupts
    graph.invoke(Command(resume={asked[0].id: "a"}), thread())
    assert told(accessor.get(thread(), subgraphs=True)) != before
    assert restore(accessor, point)
    assert told(accessor.get(thread(), subgraphs=True)) == before


@every_async_case
async def test_the_async_face_takes_subgraphs_back_too(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as saver:
        graph = nested("delta", 2, CachedHistorySaver(saver), [])
        accessor = CheckpointStateAccessor(graph, graph.checkpointer, "delta")
        await graph.ainvoke({"log": ["in"]}, thread())
        before = told(await accessor.aget(thread(), subgraphs=True))
        point = await acapture_rollback_point(accessor, thread())
        await graph.ainvoke(Command(resume="a"), thread())
        assert await arestore(accessor, point)
        assert told(await accessor.aget(thread(), subgraphs=True)) == before
        await graph.ainvoke(Command(resume="b"), thread())
        out = await graph.ainvoke(Command(resume="c"), thread())
        assert out["log"][-3:] == ["first b", "second c", "last"]


@pytest.mark.parametrize("mode", ["full", "delta"])
def test_a_subgraph_with_a_memory_that_went_on_is_refused(mode: Any) -> None:
    graph = nested(mode, 1, InMemorySaver(), [], checkpointer=True)
    accessor = CheckpointStateAccessor(graph, graph.checkpointer, mode)
    graph.invoke({"log": ["in"]}, thread())
    point = capture_rollback_point(accessor, thread())
    graph.invoke(Command(resume="a"), thread())
    left = told(accessor.get(thread(), subgraphs=True))
    with pytest.raises(RollbackError, match="its subgraph inner keeps its state by itself"):
        restore(accessor, point)
    assert told(accessor.get(thread(), subgraphs=True)) == left


def _parallel(mode: str, saver: Any, ran: list[str], failing: list[str]) -> Any:
    """Two tasks of a subgraph that asks and goes on, which may fail."""

    def after(state: Any) -> Any:
        name = state["log"][0]
        if name in failing:
            raise Stopped
        ran.append(name)
        return {"log": [f"after {name}"]}

    def ask(state: Any) -> Any:
        return {"log": [f"{state['log'][0]} {interrupt(state['log'][0])}"]}

    builder: Any = StateGraph(_schema(mode))
    builder.add_node("inner", _chain(mode, ("ask", ask), ("after", after)))
    sends = [Send("inner", {"log": [name]}) for name in ("a", "b")]
    builder.add_conditional_edges(START, lambda _: sends, ["inner"])
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("mode", ["full", "delta"])
@pytest.mark.parametrize("failing", [[], ["a"]], ids=["finished", "failed later"])
def test_a_subgraph_that_was_answered_hinders_no_rollback(mode: Any, failing: list[str]) -> None:
    def answer(graph: Any, *names: str) -> None:
        asked = graph.get_state(thread()).interrupts
        answers = {one.id: "yes" for one in asked if one.value in names}
        with suppress(Stopped):
            graph.invoke(Command(resume=answers), thread())

    saver, ran, fails = InMemorySaver(), list[str](), list(failing)
    graph = _parallel(mode, CachedHistorySaver(saver), ran, fails)
    accessor = CheckpointStateAccessor(graph, saver, mode)
    graph.invoke({"log": ["in"]}, thread())
    answer(graph, "a")
    before = told(accessor.get(thread(), subgraphs=True))
    point = capture_rollback_point(accessor, thread())
    graph.invoke({"log": ["new"]}, thread())
    assert restore(accessor, point)
    assert told(accessor.get(thread(), subgraphs=True)) == before
    fails.clear()
    ran.clear()
    answer(graph, "b")
    state = graph.get_state(thread())
    if state.next:
        graph.invoke(None, thread())
        state = graph.get_state(thread())
    assert not state.next
    assert {"a yes", "after a", "b yes", "after b"} < set(state.values["log"])
    assert ran.count("a") == len(failing)
    assert ran.count("b") == 1
