"""What LangGraph does with a saver, it does with a wrapper: the same flow, the same outcome.

Every flow runs on two fresh threads, through the raw saver and through the wrapper, and
tells all it saw but for random ids. Afterwards the wrapper's reads of its thread are
compared with the saver's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, StreamMode, interrupt

from deerflow_saver import CachedHistorySaver
from support.conversation import append, at, conversation, question, thread
from support.savers import (
    SaverCase,
    Storage,
    every_async_case,
    every_sync_case,
)
from support.upstream import keeps_parallel_order, without_order

Saver = BaseCheckpointSaver[Any]
Durability = Literal["sync", "async", "exit"]
Flow = Callable[[Saver, RunnableConfig], Iterator[Any]]
CHANNELS = ("log", "plain", "messages", "notes", "facts")


class State(TypedDict, total=False):
    """One list as a delta channel, and the same one as a plain one."""

    log: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=3)]
    plain: Annotated[list[Any], operator.add]


def said(*words: Any) -> State:
    return {"log": list(words), "plain": list(words)}


def shown(snapshot: Any) -> Any:
    """A state without ids."""
    return (
        snapshot.values,
        snapshot.next,
        [item.value for item in snapshot.interrupts],
        snapshot.metadata and (snapshot.metadata["source"], snapshot.metadata["step"]),
        sorted((item.name, str(item.path), repr(item.result)) for item in snapshot.tasks),
    )


def history(graph: Any, config: RunnableConfig) -> list[Any]:
    return [shown(state) for state in graph.get_state_history(config)]


def assert_rows_read_equal(saver: Saver, raw: Saver, thread_id: str) -> None:
    """Compare the histories of all checkpoints of a thread, in all its namespaces."""
    rows = list(raw.list({"configurable": {"thread_id": thread_id}}))
    assert rows
    for row in rows:
        expected = raw.get_delta_channel_history(config=row.config, channels=CHANNELS)
        for _ in range(2):
            found = saver.get_delta_channel_history(config=row.config, channels=CHANNELS)
            assert found == expected
            assert repr(found) == repr(expected)


def interrupts(saver: Saver, config: RunnableConfig) -> Iterator[Any]:
    """Two parallel nodes ask, are answered one after the other, and ask again next turn."""

    def ask(name: str) -> Callable[[State], State]:
        def node(state: State) -> State:
            return said(f"{name}: {interrupt(f'{name}?')}")

        return node

    builder = StateGraph(State)
    builder.add_node("one", ask("one"))
    builder.add_node("two", ask("two"))
    builder.add_node("quiet", lambda _: said("quiet"))
    builder.add_node("end", lambda state: said(len(state["log"])))
    for name in ("one", "two", "quiet"):
        builder.add_edge(START, name)
        builder.add_edge(name, "end")
    builder.add_edge("end", END)
    graph: Any = builder.compile(checkpointer=saver)
    for turn in range(2):
        graph.invoke(said(f"turn {turn}"), config)
        yield shown(graph.get_state(config))
        asked = {item.value: item.id for item in graph.get_state(config).interrupts}
        graph.invoke(Command(resume={asked["one?"]: "yes"}), config)
        yield shown(graph.get_state(config))
        graph.invoke(Command(resume={asked["two?"]: "no"}, update=said("update")), config)
        yield shown(graph.get_state(config))
    yield history(graph, config)


def static_interrupts(saver: Saver, config: RunnableConfig) -> Iterator[Any]:
    """A stop before a node, an edit meanwhile, and on."""
    builder = StateGraph(State)
    builder.add_node("draft", lambda state: said(f"draft {len(state['log'])}"))
    builder.add_node("send", lambda state: said(f"sent {state['log'][-1]}"))
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "send")
    builder.add_edge("send", END)
    graph: Any = builder.compile(checkpointer=saver, interrupt_before=["send"])
    for turn in range(3):
        yield graph.invoke(said(turn), config)
        graph.update_state(config, said("edited"))
        yield shown(graph.get_state(config))
        yield graph.invoke(None, config)
    graph.update_state(config, {"log": Overwrite(["anew"]), "plain": Overwrite(["anew"])})
    yield graph.invoke(said("after"), config)
    yield history(graph, config)


def _nested(own: bool | None) -> Any:
    inner = StateGraph(State)
    inner.add_node("deep", lambda state: said(f"deep {len(state['log'])}"))
    inner.add_node("ask", lambda _: said(f"told {interrupt('well?')}"))
    inner.add_edge(START, "deep")
    inner.add_edge("deep", "ask")
    inner.add_edge("ask", END)
    return inner.compile(checkpointer=own)


def _subgraphs(saver: Saver, config: RunnableConfig, *, own: bool | None) -> Iterator[Any]:
    builder = StateGraph(State)

    def call(state: State) -> State:
        found = nested.invoke(said(f"from {len(state['log'])}"))
        return said(*found["log"][-2:])

    nested = _nested(own)
    builder.add_node("before", lambda _: said("before"))
    builder.add_node("nested", call if own else nested)
    builder.add_edge(START, "before")
    builder.add_edge("before", "nested")
    builder.add_edge("nested", END)
    graph: Any = builder.compile(checkpointer=saver)
    for turn in range(3):
        yield graph.invoke(said(turn), config)["log"]
        state = graph.get_state(config, subgraphs=True)
        yield shown(state)
        yield [shown(item.state) for item in state.tasks if item.state is not None]
        graph.invoke(Command(resume=turn), config)
        yield shown(graph.get_state(config))
    yield history(graph, config)


def inherited_subgraphs(saver: Saver, config: RunnableConfig) -> Iterator[Any]:
    """A subgraph that lives for one run, and is interrupted."""
    return _subgraphs(saver, config, own=None)


def stateful_subgraphs(saver: Saver, config: RunnableConfig) -> Iterator[Any]:
    """A subgraph with `checkpointer=True` remembers its earlier turns."""
    return _subgraphs(saver, config, own=True)


def functional(saver: Saver, config: RunnableConfig) -> Iterator[Any]:
    """The functional API: tasks, an interrupt, and what the last call saved."""

    @task
    def double(number: int) -> int:
        return 2 * number

    @entrypoint(checkpointer=saver)
    def workflow(number: int, *, previous: Any = None) -> Any:
        futures = [double(number + i) for i in range(3)]
        total = sum(future.result() for future in futures)
        total += interrupt({"previous": previous})
        return entrypoint.final(value=total, save=[*(previous or []), total])

    for number in range(3):
        chunks = workflow.stream(number, config, stream_mode=["updates", "values"])
        yield sorted(repr(_without_ids(chunk)) for chunk in chunks)  # tasks end in any order
        yield workflow.invoke(Command(resume=number), config)
        yield shown(workflow.get_state(config))
    yield history(workflow, config)


def forks(saver: Saver, config: RunnableConfig) -> Iterator[Any]:
    """Going back, editing there, and running on from there."""
    graph: Any = conversation(saver)
    for number in range(2):
        yield graph.invoke(question(number), config)["plain"].count("audited")
    for index in (6, 3):
        earlier = list(graph.get_state_history(config))[index]
        fork = graph.update_state(earlier.config, question(7 + index), as_node="__start__")
        graph.invoke(None, fork)
        yield shown_sorted(graph.get_state(config))
    yield [shown_sorted(state) for state in graph.get_state_history(config)]


def shown_sorted(snapshot: Any) -> Any:
    """A state whose parallel writers come in the order of random ids."""
    return sorted(map(repr, snapshot.values.get("notes", ()))), snapshot.next


def _without_ids(chunk: Any) -> Any:
    """A streamed chunk without the ids of interrupts and tasks."""
    if isinstance(chunk, dict):
        return {
            key: _without_ids(value)
            for key, value in chunk.items()
            if key not in {"id", "config", "parent_config", "timestamp", "metadata"}
        }
    if type(chunk) in (list, tuple):
        return [_without_ids(item) for item in chunk]
    return getattr(chunk, "value", chunk) if type(chunk).__name__ == "Interrupt" else chunk


def streaming(saver: Saver, config: RunnableConfig) -> Iterator[Any]:
    """Every stream mode, alone and together."""
    builder = StateGraph(State)
    builder.add_node("a", lambda state: said(f"a{len(state['log'])}"))
    builder.add_node("b", lambda state: said(f"b{len(state['log'])}"))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", END)
    graph: Any = builder.compile(checkpointer=saver)
    modes: list[StreamMode] = ["values", "updates", "checkpoints", "tasks", "debug"]
    for turn, mode in enumerate([*modes, modes]):
        for chunk in graph.stream(said(turn), config, stream_mode=mode):
            yield _without_ids(chunk)
    yield history(graph, config)


FLOWS = (
    interrupts,
    static_interrupts,
    inherited_subgraphs,
    stateful_subgraphs,
    functional,
    streaming,
)
every_flow = pytest.mark.parametrize("flow", FLOWS)


@every_flow
@every_sync_case
def test_a_flow_through_the_wrapper_is_the_same(
    flow: Flow, case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        told = list if keeps_parallel_order(raw) else without_order
        expected = told(flow(raw, thread("raw")))
        assert told(flow(saver, thread("wrapped"))) == expected
        assert_rows_read_equal(saver, raw, "wrapped")
        assert_rows_read_equal(saver, raw, "raw")
        assert saver.cache_info().errors == 0


@every_sync_case
def test_forks_are_the_same_where_they_are_allowed(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw, guard="off")
        expected = list(forks(raw, thread("raw")))
        assert list(forks(saver, thread("wrapped"))) == expected
        assert_rows_read_equal(saver, raw, "wrapped")
        assert_rows_read_equal(saver, raw, "raw")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@every_sync_case
def test_every_durability_reads_equal(
    durability: Durability, case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        graph, raw_graph = conversation(saver), conversation(raw)
        for number in range(3):
            graph.invoke(question(number), thread(), durability=durability)
            assert graph.get_state(thread()) == raw_graph.get_state(thread())
        assert_rows_read_equal(saver, raw, "thread")
        for ours, theirs in zip(
            graph.get_state_history(thread()), raw_graph.get_state_history(thread()), strict=True
        ):
            assert ours == theirs


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@every_async_case
async def test_async_runs_stream_and_read_equal(
    durability: Durability, case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        streamed: dict[str, list[Any]] = {"raw": [], "wrapped": []}
        for name, target in (("raw", raw), ("wrapped", saver)):
            graph: Any = conversation(target)
            for number in range(3):
                async for chunk in graph.astream(
                    question(number), thread(name), stream_mode="values", durability=durability
                ):
                    streamed[name].append(sorted(map(repr, chunk.get("messages", ()))))
        assert streamed["wrapped"] == streamed["raw"]
        for name in ("raw", "wrapped"):
            rows = [row async for row in raw.alist(thread(name))]
            assert rows
            for row in rows:
                config = at(row, thread(name))
                found = await saver.aget_delta_channel_history(config=config, channels=CHANNELS)
                assert found == await raw.aget_delta_channel_history(
                    config=config, channels=CHANNELS
                )


@every_async_case
async def test_an_async_interrupt_is_resumed_with_the_same_state(
    case: SaverCase, storage: Storage
) -> None:
    async def run(target: Any, config: RunnableConfig) -> list[Any]:
        builder = StateGraph(State)
        builder.add_node("nested", _nested(None))
        builder.add_node("after", lambda state: said(f"after {len(state['log'])}"))
        builder.add_edge(START, "nested")
        builder.add_edge("nested", "after")
        builder.add_edge("after", END)
        graph: Any = builder.compile(checkpointer=target)
        seen = []
        for turn in range(3):
            await graph.ainvoke(said(turn), config)
            seen.append(shown(await graph.aget_state(config)))
            await graph.ainvoke(Command(resume=turn), config)
            seen.append(shown(await graph.aget_state(config)))
        seen.extend([shown(state) async for state in graph.aget_state_history(config)])
        return seen

    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        expected = await run(raw, thread("raw"))
        assert await run(saver, thread("wrapped")) == expected
        assert expected[-1] is not None
