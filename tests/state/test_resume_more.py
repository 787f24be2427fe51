"""Going back with subgraphs, breakpoints, failed steps, other channels, other serialisers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph import types
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import (
    CheckpointResumeError,
    CheckpointStateAccessor,
    linearize_resume,
    prepare_run,
)
from support.agent_in_modes import Agent, extend, schema
from support.modes import thread
from support.savers import SaverCase, Storage, every_sync_case

NUMBERED = hasattr(types, "_interrupt_id")
"""Whether this release tells a task's questions apart by their ids."""


def history(graph: Any) -> list[Any]:
    return list(graph.get_state_history(thread()))


def at(graph: Any, *next_: str) -> Any:
    """The newest checkpoint, the head apart, with these tasks to run."""
    return next(state for state in history(graph)[1:] if state.next == next_)


# -- subgraphs ------------------------------------------------------------------------------------


def nested(mode: str, saver: Any, ran: list[str], checkpointer: Any = None) -> Any:
    """A parent whose second node is a subgraph that asks, if it is to."""

    def ask(state: Any) -> Any:
        ran.append("ask")
        return {"log": [f"child {interrupt('?') if state.get('do') == 'ask' else 'silent'}"]}

    def step(name: str) -> Callable[[Any], Any]:
        def run(_: Any) -> Any:
            ran.append(name)
            return {"log": [name]}

        return run

    child: Any = StateGraph(schema(mode))
    child.add_node("first", step("first"))
    child.add_node("ask", ask)
    child.add_edge(START, "first")
    child.add_edge("first", "ask")
    parent: Any = StateGraph(schema(mode))
    parent.add_node("before", step("before"))
    parent.add_node("child", child.compile(checkpointer=checkpointer))
    parent.add_node("after", step("after"))
    parent.add_edge(START, "before")
    parent.add_edge("before", "child")
    parent.add_edge("child", "after")
    parent.add_edge("after", END)
    return parent.compile(checkpointer=saver)


@pytest.mark.parametrize("do", ["x", "ask"])
def test_a_subgraph_of_a_call_starts_anew_as_after_a_fork(do: str) -> None:
    """It keeps no state of its own, and its namespace is another one for every task."""
    seen = []
    for mode in ("full", "delta"):
        ran: list[str] = []
        graph = nested(mode, InMemorySaver(), ran)
        graph.invoke({"log": ["one"], "do": do}, thread())
        graph.invoke({"log": ["two"], "do": do}, thread())
        ran.clear()
        place = history(graph)[-3].config
        assert graph.get_state(place).next == ("child",)
        if mode == "full":
            graph.invoke(None, place)
        else:
            graph.invoke(*prepare_run(graph, place, None))
        if do == "ask":
            graph.invoke(Command(resume="yes"), thread())
        state = graph.get_state(thread())
        seen.append((list(ran), state.next, sorted(state.values["log"])))
    assert seen[0] == seen[1]


def test_an_interrupt_of_a_subgraph_is_not_answered_but_its_task_can_run_again() -> None:
    ran: list[str] = []
    graph = nested("delta", CachedHistorySaver(InMemorySaver()), ran)
    graph.invoke({"log": ["one"], "do": "ask"}, thread())
    asking = graph.get_state(thread()).config
    graph.invoke(Command(resume="early"), thread())
    before = history(graph)
    accessor = CheckpointStateAccessor(graph, graph.checkpointer, "delta")
    for given in (Command(resume="late"), ...):
        options = {} if given is ... else {"input": given}
        with pytest.raises(CheckpointResumeError, match="could not answer") as caught:
            linearize_resume(accessor, thread(**asking["configurable"]), run_id="r", **options)
        assert "was asked by a subgraph" in caught.value.__notes__[0]
    assert history(graph) == before
    ran.clear()
    graph.invoke(*prepare_run(graph, asking, None))
    assert ran == ["first", "ask"]
    graph.invoke(Command(resume="late"), thread())
    assert graph.get_state(thread()).values["log"][-2:] == ["child late", "after"]


@every_sync_case
def test_a_subgraph_with_a_memory_that_went_on_is_refused(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as saver:
        graph = nested("delta", CachedHistorySaver(saver), [], checkpointer=True)
        graph.invoke({"log": ["one"], "do": "x"}, thread())
        middle = at(graph, "child").config
        graph.update_state(thread(), {"log": ["u1"]}, as_node="after")
        settled = graph.get_state(thread())
        for number in range(40):  # more than a page of checkpoints in between
            graph.update_state(thread(), {"log": [f"u{number}"]}, as_node="after")
        before = len(history(graph))
        config = thread(**middle["configurable"])
        with pytest.raises(CheckpointResumeError, match="ould not take its subgraphs") as caught:
            prepare_run(graph, config, None)
        assert "Subgraph child has gone on since" in str(caught.value.__notes__)
        assert config == thread(**middle["configurable"])
        assert len(history(graph)) == before
        # After this checkpoint the subgraph did not run
        graph.invoke(*prepare_run(graph, settled.config, {"log": ["two"], "do": "x"}))
        log = graph.get_state(thread()).values["log"]
        assert log[: len(settled.values["log"]) + 1] == [*settled.values["log"], "two"]
        assert "u7" not in log


async def test_a_subgraph_with_a_memory_is_refused_on_the_async_face_too(
    storage: Storage,
) -> None:
    from deerflow_saver.state import aprepare_run
    from support.savers import ASYNC_CASES

    for case in ASYNC_CASES:
        async with case.aopen(storage) as saver:
            graph = nested("delta", saver, [], checkpointer=True)
            place = {"configurable": {"thread_id": case.name}}
            await graph.ainvoke({"log": ["one"], "do": "x"}, place)
            states = [state async for state in graph.aget_state_history(place)]
            with pytest.raises(CheckpointResumeError, match="ould not take its subgraphs"):
                await aprepare_run(graph, states[-3].config, None)


# -- what is scheduled ----------------------------------------------------------------------------


@pytest.mark.parametrize("breakpoint_", ["interrupt_before", "interrupt_after"])
def test_breakpoints_stop_the_run_where_they_stop_a_fork(breakpoint_: str) -> None:
    for place in range(1, 5):
        seen = []
        for mode in ("full", "delta"):
            agent = Agent(mode, InMemorySaver(), **{breakpoint_: ["close"]})
            agent.graph.invoke({"log": ["one"], "do": "x"}, thread())
            while agent.graph.get_state(thread()).next:
                agent.graph.invoke(None, thread())
            agent.graph.update_state(thread(), {"log": ["u"]}, as_node="close")
            agent.take_ran()
            states = history(agent.graph)
            config = states[min(place, len(states) - 1)].config
            run = (None, config) if mode == "full" else prepare_run(agent.graph, config, None)
            agent.graph.invoke(*run)
            state = agent.graph.get_state(thread())
            seen.append((agent.take_ran(), state.next, sorted(state.values["log"])))
        assert seen[0] == seen[1], place


def test_a_step_that_failed_is_run_again_from_its_checkpoint() -> None:
    fails = threading.Event()
    ran: list[str] = []

    def work(_: Any) -> Any:
        ran.append("work")
        if not fails.is_set():
            fails.set()
            msg = "once"
            raise ValueError(msg)
        return {"log": ["worked"]}

    builder: Any = StateGraph(schema("delta"))
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    graph = builder.compile(checkpointer=CachedHistorySaver(InMemorySaver()))
    with pytest.raises(ValueError, match="once"):
        graph.invoke({"log": ["one"]}, thread())
    failed = graph.get_state(thread()).config
    graph.update_state(thread(), {"log": ["given up"]}, as_node="work")
    assert graph.invoke(*prepare_run(graph, failed, None))["log"] == ["one", "worked"]
    assert ran == ["work", "work"]
    assert graph.get_state(thread()).values["log"] == ["one", "worked"]


def test_the_second_question_of_a_task_waits_with_the_first_answered() -> None:
    agent = Agent("delta", CachedHistorySaver(InMemorySaver()))
    agent.graph.invoke({"log": ["one"], "do": "ask twice"}, thread())
    agent.graph.invoke(Command(resume="a"), thread())
    asking = agent.accessor.get(thread())
    agent.graph.invoke(Command(resume="b"), thread())
    agent.graph.invoke({"log": ["two"], "do": "x"}, thread())
    done = linearize_resume(agent.accessor, asking.config)
    assert done is not None
    state = agent.accessor.get(thread())
    assert "work" in state.next  # a release that takes an answer for a result leaves out "ask"
    assert [asked.value for asked in state.interrupts] == ["second?"]
    ids = {asked.id: new.id for asked, new in zip(asking.interrupts, state.interrupts, strict=True)}
    assert done.interrupt_ids == ids
    assert agent.graph.invoke(Command(resume="B"), thread())["title"] == "asked a"
    assert "answered aB" in agent.accessor.get(thread()).values["log"]


def test_several_questions_are_answered_by_their_old_ids_or_not_at_all() -> None:
    builder: Any = StateGraph(schema("delta"))
    for name in ("left", "right"):
        builder.add_node(name, lambda _, name=name: {"log": [f"{name} {interrupt(name)}"]})
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=CachedHistorySaver(InMemorySaver()))
    graph.invoke({"log": ["one"]}, thread())
    asking = graph.get_state(thread())
    ids = {asked.value: asked.id for asked in asking.interrupts}
    graph.invoke(Command(resume={ids["left"]: 1, ids["right"]: 2}), thread())
    before = history(graph)
    for answer, why in [
        (Command(resume=3), "Several interrupts wait there" if NUMBERED else "cannot be told"),
        (
            Command(resume={"0" * 32: 3}),
            f"No interrupt {'0' * 32} waits there" if NUMBERED else "cannot be told",
        ),
    ]:
        with pytest.raises(CheckpointResumeError, match="ould not answer") as caught:
            prepare_run(graph, asking.config, answer)
        assert why in caught.value.__notes__[0]
    assert history(graph) == before
    config = thread(**asking.config["configurable"])
    answer = Command(resume={ids["right"]: 3, ids["left"]: 4})
    if not NUMBERED:
        with pytest.raises(CheckpointResumeError) as caught:
            prepare_run(graph, config, answer)
        assert "which of its task's answers came before cannot be told" in caught.value.__notes__[0]
        assert history(graph) == before
        return
    run = prepare_run(graph, config, answer)
    assert config == asking.config
    assert sorted(graph.invoke(*run)["log"]) == ["left 4", "one", "right 3"]


def test_an_answer_where_nothing_waits_and_nothing_would_run_is_refused() -> None:
    agent = Agent("delta", CachedHistorySaver(InMemorySaver()))
    for turn in ("one", "two"):
        agent.graph.invoke({"log": [turn], "do": "x"}, thread())
    settled = at(agent.graph).config
    with pytest.raises(CheckpointResumeError, match="ould not answer") as caught:
        prepare_run(agent.graph, settled, Command(resume="?"))
    assert "No interrupt waits there" in caught.value.__notes__[0]


def test_the_first_turn_can_be_run_again_from_its_input() -> None:
    """Regenerate without sending the message again: the input checkpoint holds it."""
    agent = Agent("delta", CachedHistorySaver(InMemorySaver()))
    agent.graph.invoke({"log": ["one"], "do": "x"}, thread())
    first = history(agent.graph)[-1]
    assert first.next == ("__start__",)
    out = agent.graph.invoke(*prepare_run(agent.graph, first.config, None))
    assert out["log"][0] == "one"
    assert len(out["log"]) == 4


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_leaves_checkpoints_to_go_back_to(durability: Any) -> None:
    saver = InMemorySaver()
    agent = Agent("delta", CachedHistorySaver(saver))
    for turn in ("one", "two", "three"):
        agent.graph.invoke({"log": [turn], "do": "x"}, thread(), durability=durability)
    for state in history(agent.graph)[1:]:
        if state.next:
            continue
        before = agent.accessor.get(state.config).values
        assert linearize_resume(agent.accessor, thread(**state.config["configurable"]))
        for reader in (agent, Agent("delta", saver)):
            assert reader.accessor.get(thread()).values == before
        agent.graph.invoke({"log": ["again"], "do": "x"}, thread(), durability=durability)
        assert Agent("delta", saver).accessor.get(thread()).values["log"][:-3] == [
            *before.get("log", []), "again",
        ]  # fmt: skip


# -- values ---------------------------------------------------------------------------------------


class Uncopyable:
    """Can be stored, and refuses to be copied."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __deepcopy__(self, _memo: Any) -> Any:
        raise AssertionError

    __copy__ = __deepcopy__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uncopyable) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


class Held(TypedDict, total=False):
    """Values of a type that cannot be copied, plain and in a delta channel."""

    one: Any
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=50)]


def test_values_that_cannot_be_copied_are_taken_back() -> None:
    builder: Any = StateGraph(Held)
    builder.add_node("n", lambda _: {})
    builder.add_edge(START, "n")
    saver = InMemorySaver(serde=JsonPlusSerializer(pickle_fallback=True))
    graph = builder.compile(checkpointer=saver)
    for number in range(3):
        graph.invoke({"one": Uncopyable(number), "log": [Uncopyable(number)]}, thread())
    settled = [state for state in history(graph) if not state.next][1]
    graph.invoke(*prepare_run(graph, settled.config, {"log": [Uncopyable(9)]}))
    values = graph.get_state(thread()).values
    assert values["one"] == Uncopyable(1)
    assert values["log"] == [Uncopyable(0), Uncopyable(1), Uncopyable(9)]


def test_a_channel_that_was_never_written_there_is_empty_again() -> None:
    saver = InMemorySaver()
    agent = Agent("delta", saver)
    agent.accessor.graph.invoke({"do": "x"}, thread())
    first = at(agent.graph, "plan").config
    agent.graph.update_state(thread(), {"log": ["late"], "title": "T"}, as_node="close")
    assert linearize_resume(agent.accessor, first, input=None) is not None
    for reader in (agent, Agent("delta", saver)):
        state = reader.accessor.get(thread())
        assert {k: v for k, v in state.values.items() if v} == {"do": "x"}
        assert state.next == ("plan",)
    out = agent.graph.invoke(None, thread())
    assert "late" not in out["log"]
    assert Agent("delta", saver).accessor.get(thread()).values["log"] == out["log"]


def test_a_checkpoint_from_before_the_thread_became_delta_can_be_gone_back_to() -> None:
    saver = InMemorySaver()
    full = Agent("full", saver)
    for turn in ("one", "two"):
        full.graph.invoke({"log": [turn], "do": "x"}, thread())
    agent = Agent("delta", CachedHistorySaver(saver))
    settled = at(agent.graph)
    assert settled.values["log"][0] == "one"
    agent.graph.invoke({"log": ["three"], "do": "x"}, thread())
    out = agent.graph.invoke(*prepare_run(agent.graph, settled.config, {"log": ["four"]}))
    assert out["log"][: len(settled.values["log"]) + 1] == [*settled.values["log"], "four"]
    assert Agent("delta", saver).accessor.get(thread()).values["log"] == out["log"]


def test_what_is_stored_says_where_it_came_from_and_keeps_the_old_states() -> None:
    saver = InMemorySaver()
    agent = Agent("delta", CachedHistorySaver(saver))
    for turn in ("one", "two"):
        agent.graph.invoke({"log": [turn], "do": "x"}, thread())
    states = {s.config["configurable"]["checkpoint_id"]: s.values for s in history(agent.graph)}
    head = agent.accessor.get(thread())
    settled = at(agent.graph).config["configurable"]["checkpoint_id"]
    done = linearize_resume(agent.accessor, thread(checkpoint_id=settled))
    assert done is not None
    assert (done.checkpoint_id, done.messages, done.input) == (settled, [], None)
    assert done.head_id == head.config["configurable"]["checkpoint_id"]
    state = agent.accessor.get(thread())
    assert state.config == done.config
    assert state.metadata is not None
    assert state.metadata["deerflow_resumed_from"] == settled
    assert state.metadata["source"] == "fork"
    assert head.metadata is not None
    assert state.metadata["step"] == head.metadata["step"] + 1
    for reader in (agent, Agent("delta", saver)):
        for old in history(reader.graph)[1:]:
            assert old.values == states[old.config["configurable"]["checkpoint_id"]]


def test_types_that_a_strict_process_may_decode_stay_what_they_are() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "state.strict_resume_worker"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"},
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    )
    log = "[Note(text='input 0'), Note(text='again')]"
    line = f"True {{'log': {log}, 'facts': {{'a': Note(text='fact')}}}}"
    assert found.stdout.splitlines() == [line, line]
