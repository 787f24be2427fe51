"""Going back to a checkpoint in delta mode: what a fork does in full mode, without the fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import (
    CheckpointResumeError,
    CheckpointStateAccessor,
    alinearize_resume,
    aprepare_run,
    linearize_resume,
    prepare_run,
)
from deerflow_saver.state.fork_probe import forks_are_right
from support.agent_in_modes import Agent, schema
from support.modes import thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

Wrap = Callable[[Any], Any]
WRAPS: dict[str, Wrap] = {
    "refusing": CachedHistorySaver,
    "observing": lambda saver: CachedHistorySaver(saver, guard="observe"),
    "raw": lambda saver: saver,
}
every_wrap = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)

INPUTS: dict[str, Any] = {
    "nothing": None,
    "a new input": {"log": ["new"], "do": "x"},
    "an update": Command(update={"log": ["updated"], "facts": {"u": 1}}),
    "a jump": Command(goto="close"),
    "an answer": Command(resume="later"),
}


def converse(agent: Agent, **options: Any) -> None:
    """Turns with a question, a fan-out and updates."""
    run = agent.graph.invoke
    run({"log": ["one"], "do": "x"}, thread(), **options)
    run({"log": ["two"], "do": "ask"}, thread(), **options)
    run(Command(resume="early"), thread(), **options)
    agent.graph.update_state(thread(), {"log": ["edited"], "title": "T"}, as_node="close")
    run({"log": ["three"], "do": "spread"}, thread(), **options)
    run(Command(update={"log": ["by command"]}, goto="plan"), thread(), **options)
    agent.take_ran()


def copied(config: Any) -> Any:
    """A config of one's own: a resume takes its selector out."""
    return thread(**config["configurable"])


def shown(agent: Agent, place: Any = None) -> Any:
    """What the thread shows, at its head by default; empty channels of either mode alike."""
    state = agent.accessor.get(place or thread())
    values = {name: value for name, value in state.values.items() if value not in ([], {}, None)}
    # The facts and logs of one step come in no order that releases agree on
    values["log"] = sorted(values.get("log", []))
    return values, sorted(state.next), [asked.value for asked in state.interrupts]


def history(agent: Agent) -> list[Any]:
    return agent.accessor.history(thread())


def finished(agent: Agent) -> Any:
    """What the thread shows when all questions were answered."""
    while agent.accessor.get(thread()).interrupts:
        agent.graph.invoke(Command(resume="finally"), thread())
    return shown(agent), agent.take_ran()


def fork(place: int, given: Any) -> Any:
    """What a full thread does when a run begins at its checkpoint number `place`."""
    full = Agent("full", InMemorySaver())
    converse(full)
    states = history(full)
    full.graph.invoke(given, states[place].config)
    if full.accessor.get(thread()).config == states[0].config:
        # Older releases begin no branch where an update made the checkpoint and nothing is to run
        return full.take_ran(), (shown(full, states[place].config), [])
    return full.take_ran(), finished(full)


@every_wrap
@pytest.mark.parametrize("given", INPUTS.values(), ids=INPUTS)
def test_every_checkpoint_resumed_by_any_input_runs_and_leaves_what_a_full_fork_does(
    wrap: Wrap, given: Any
) -> None:
    scratch = Agent("delta", InMemorySaver())
    converse(scratch)
    places = history(scratch)
    resumed = 0
    for place in range(1, len(places)):
        delta = Agent("delta", wrap(InMemorySaver()))
        converse(delta)
        state = history(delta)[place]
        assert (state.next, state.metadata) == (places[place].next, state.metadata)
        try:
            run = prepare_run(delta.graph, state.config, given)
        except CheckpointResumeError:
            assert given == INPUTS["an answer"]
            assert not state.next
            continue
        delta.graph.invoke(*run)
        here = delta.take_ran(), finished(delta)
        resumed += 1
        expected = fork(place, given)
        if given == INPUTS["an answer"] and state.interrupts:
            # LangGraph's fork is given the old answer once more: here it is the new one
            assert here[0] == expected[0]
            assert here[1][0][0]["title"] == "asked later"
            continue
        assert here == expected, f"checkpoint {place}, next {state.next}"
    assert resumed > 5


@every_wrap
@every_sync_case
def test_the_story_of_a_regenerated_answer_on_every_saver(
    case: SaverCase, storage: Storage, wrap: Wrap
) -> None:
    """Branch a conversation, regenerate its last answer, reload: one answer, not two (#4458)."""
    with case.open(storage) as saver:
        agent = Agent("delta", wrap(saver))
        agent.graph.invoke({"log": ["h1"], "do": "x"}, thread())
        agent.accessor.replace(thread(), {"log": ["h1", "a1"]})
        base = agent.accessor.get(thread()).config
        agent.accessor.update(thread(), {"log": ["h2", "a2"]}, as_node="close")
        abandoned = agent.accessor.get(thread()).config
        run = prepare_run(agent.graph, base, {"log": ["h2"], "do": "x"})
        out = agent.graph.invoke(*run)
        expected = ["close", "plan", "work"]
        assert out["log"][:3] == ["h1", "a1", "h2"]
        assert sorted(out["log"][3:]) == expected
    with case.open(storage) as saver:
        reloaded = Agent("delta", wrap(saver))
        log = reloaded.accessor.get(thread()).values["log"]
        assert (log[:3], sorted(log[3:])) == (["h1", "a1", "h2"], expected)
        assert reloaded.accessor.get(abandoned).values["log"] == ["h1", "a1", "h2", "a2"]
        assert reloaded.accessor.get(base).values["log"] == ["h1", "a1"]
        parents = [state.parent_config for state in history(reloaded)]
        ids = [state.config["configurable"]["checkpoint_id"] for state in history(reloaded)]
        assert [parent and parent["configurable"]["checkpoint_id"] for parent in parents] == [
            *ids[1:], None,
        ]  # fmt: skip


@pytest.mark.parametrize("part", ["configurable", "metadata"])
def test_a_run_that_has_an_id_goes_on_with_its_input(part: str) -> None:
    """LangGraph leaves the input out if the head is the run's own, by its id."""
    agent = Agent("delta", CachedHistorySaver(InMemorySaver()))
    converse(agent)
    config: Any = copied(history(agent)[3].config)
    config.setdefault(part, {})["run_id"] = "r"
    assert linearize_resume(agent.accessor, config, run_id="r") is not None
    assert config[part]["run_id"] == "r"
    assert "new" in agent.graph.invoke({"log": ["new"], "do": "x"}, config)["log"]


@every_async_case
async def test_the_async_face_goes_back_to_the_same(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as saver:
        agent = Agent("delta", CachedHistorySaver(saver))
        await agent.graph.ainvoke({"log": ["one"], "do": "x"}, thread())
        first = await agent.accessor.aget(thread())
        await agent.graph.ainvoke({"log": ["two"], "do": "ask"}, thread())
        asking = await agent.accessor.aget(thread())
        await agent.graph.ainvoke(Command(resume="early"), thread())
        out = await agent.graph.ainvoke(
            *await aprepare_run(agent.graph, asking.config, Command(resume="later"))
        )
        assert out["title"] == "asked later"
        assert "answered early" not in out["log"]
        config = first.config
        done = await alinearize_resume(agent.accessor, config, run_id="r")
        assert done is not None
        assert done.values["log"] == first.values["log"]
        state = await agent.accessor.aget(config)
        assert state.config == done.config or state.values == first.values
        assert (state.values, state.next) == (first.values, ())
    async with case.aopen(storage) as saver:
        cold = Agent("delta", saver)
        assert (await cold.accessor.aget(thread())).values == first.values


@every_wrap
def test_a_busy_heads_writes_come_back_in_no_state(wrap: Wrap) -> None:
    """The head's finished tasks have written, in an order that chance decides; 40 of 40."""
    saver = InMemorySaver()
    agent, plain = Agent("delta", wrap(saver)), Agent("delta", saver)
    for number in range(40):
        place = thread(f"thread {number}")
        agent.graph.invoke({"log": ["one"], "do": "x"}, place)
        first = agent.accessor.get(place)
        agent.graph.invoke({"log": ["two"], "do": "ask"}, place)
        assert "work" in agent.accessor.get(place).values["log"][-1:]
        assert linearize_resume(agent.accessor, copied(first.config)) is not None
        for reader in (agent, plain):
            state = reader.accessor.get(place)
            assert (state.values, state.next, state.interrupts) == (first.values, (), ())
        out = agent.graph.invoke({"log": ["three"], "do": "x"}, place)
        assert out["log"][:5] == [*first.values["log"], "three"]
        assert plain.accessor.get(place).values["log"] == out["log"]


# -- when nothing is done -----------------------------------------------------------------------


class Untouchable:
    """A saver that must not be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"configurable": None},
        thread(),
        thread(checkpoint_id=""),
        thread(checkpoint_id=None),
        thread(checkpoint_id=7),
        thread(checkpoint_id="x", checkpoint_ns="child"),
    ],
    ids=str,
)
async def test_without_a_selector_of_the_root_graph_nothing_is_read(config: Any) -> None:
    accessor = CheckpointStateAccessor(Agent("delta", None).graph, Untouchable(), "delta")
    before = repr(config)
    assert linearize_resume(accessor, config) is None
    assert await alinearize_resume(accessor, config) is None
    assert repr(config) == before


@pytest.mark.parametrize(
    ("saver", "mode"), [(None, "delta"), (Untouchable(), "full")], ids=["no saver", "full mode"]
)
def test_without_a_saver_or_in_full_mode_nothing_is_read(saver: Any, mode: Any) -> None:
    accessor = CheckpointStateAccessor(Agent("delta", None).graph, saver, mode)
    config = thread(checkpoint_id="x")
    assert linearize_resume(accessor, config) is None
    assert config == thread(checkpoint_id="x")


def test_selecting_the_head_leaves_everything_as_it_is() -> None:
    saver = InMemorySaver()
    agent = Agent("delta", CachedHistorySaver(saver))
    converse(agent)
    head = agent.accessor.get(thread()).config
    count = len(history(agent))
    before = repr(head)
    assert linearize_resume(agent.accessor, head) is None
    assert repr(head) == before
    assert len(history(agent)) == count
    given = {"log": ["x"]}
    assert prepare_run(agent.graph, head, given) == (given, head)


def test_a_graph_without_delta_channels_goes_on_forking() -> None:
    full = Agent("full", CachedHistorySaver(InMemorySaver()))
    converse(full)
    config = history(full)[3].config
    run = prepare_run(full.graph, config, None)
    assert run.config is config
    full.graph.invoke(*run)


def test_a_graph_without_a_saver_cannot_go_back() -> None:
    with pytest.raises(ValueError, match="the graph has no saver"):
        prepare_run(Agent("delta", None).graph, thread(checkpoint_id="x"), None)


# -- what is refused ------------------------------------------------------------------------------


def prepared(wrap: Wrap = CachedHistorySaver, **options: Any) -> tuple[Agent, Any]:
    """An agent with a conversation, and a function that gives everything stored."""
    agent = Agent("delta", wrap(InMemorySaver()), **options)
    converse(agent)
    return agent, history(agent)


def test_a_checkpoint_that_is_not_stored_is_refused_with_the_reference_text() -> None:
    agent, before = prepared()
    config = thread(checkpoint_id="1f000000-0000-6000-8000-000000000000")
    was = repr(config)
    with pytest.raises(RuntimeError) as caught:
        linearize_resume(agent.accessor, config, run_id="r1")
    assert str(caught.value) == (
        "Run r1 could not materialize resume checkpoint 1f000000-0000-6000-8000-000000000000"
    )
    assert isinstance(caught.value, CheckpointResumeError)
    assert caught.value.thread_id == "1"
    assert "It is not stored: select another one" in caught.value.__notes__[0]
    assert (repr(config), history(agent)) == (was, before)


def test_a_state_without_a_list_of_messages_is_refused_with_the_reference_text() -> None:
    class Odd(schema("delta")):  # type: ignore[misc]
        messages: str

    builder: Any = StateGraph(Odd)
    builder.add_node("n", lambda _: {"messages": "no list"})
    builder.add_edge(START, "n")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"log": ["a"]}, thread())
    config = graph.get_state(thread()).config
    graph.invoke({"log": ["b"]}, thread())
    with pytest.raises(CheckpointResumeError, match=r"^Could not materialize resume checkpoint 1f"):
        prepare_run(graph, config, None)


def test_a_graph_that_shows_no_channels_is_refused_with_the_reference_text() -> None:
    class Opaque:
        pass

    agent, before = prepared()
    blind = CheckpointStateAccessor(Opaque(), agent.accessor.checkpointer, "delta")
    with pytest.raises(CheckpointResumeError) as caught:
        linearize_resume(blind, before[-1].config, run_id="r")
    assert str(caught.value) == ("Run r could not inspect the state schema for checkpoint resume")
    assert history(agent) == before


def test_a_graph_that_lacks_a_delta_channel_of_the_thread_is_refused() -> None:
    agent, before = prepared()
    builder: Any = StateGraph(dict)
    builder.add_node("n", lambda _: None)
    builder.add_edge(START, "n")
    other = CheckpointStateAccessor(builder.compile(), agent.accessor.checkpointer, "delta")
    with pytest.raises(CheckpointResumeError, match="could not inspect") as caught:
        linearize_resume(other, before[5].config, run_id="r")
    assert "the thread's delta channel facts, log" in caught.value.__notes__[0]
    assert history(agent) == before


def test_a_map_that_selects_a_subgraphs_checkpoint_is_refused() -> None:
    agent, before = prepared()
    names = before[5].config["configurable"]
    config = thread(**names | {"checkpoint_map": {"": names["checkpoint_id"], "sub:1": "x"}})
    with pytest.raises(CheckpointResumeError, match="take a subgraph back by itself"):
        linearize_resume(agent.accessor, config)
    config = thread(**names | {"checkpoint_map": {"": names["checkpoint_id"]}})
    assert linearize_resume(agent.accessor, config) is not None
    assert config == thread(checkpoint_ns="")


@pytest.mark.parametrize("wrap", [CachedHistorySaver, lambda s: s], ids=["refusing", "raw"])
def test_a_map_selects_what_it_selects_for_a_run(wrap: Wrap) -> None:
    """LangGraph looks into the map first, if a namespace is named."""
    agent = Agent("delta", wrap(InMemorySaver()))
    converse(agent)
    place, other = (state.config["configurable"]["checkpoint_id"] for state in history(agent)[4:6])
    names = {"checkpoint_ns": "", "checkpoint_map": {"": place}}
    for config in (thread(**names), thread(**names, checkpoint_id=other)):
        run = prepare_run(agent.graph, config, None)
        assert run.config == thread(checkpoint_ns="")
        resumed = agent.accessor.get_metadata(thread())
        assert resumed is not None
        assert resumed["deerflow_resumed_from"] == place
    without = thread(checkpoint_map={"": place})
    assert prepare_run(agent.graph, without, None) == (None, without)


def test_a_config_of_a_subgraphs_checkpoint_is_refused() -> None:
    agent, before = prepared()
    place = before[5].config["configurable"]["checkpoint_id"]
    places = {"": place, "sub:1": "x"}
    config = thread(checkpoint_ns="sub:1", checkpoint_id="x", checkpoint_map=places)
    with pytest.raises(CheckpointResumeError, match="take a subgraph back by itself"):
        prepare_run(agent.graph, config, None)
    assert history(agent) == before


def test_an_unknown_strategy_is_refused() -> None:
    agent, before = prepared()
    with pytest.raises(ValueError, match="strategy must be 'linear' or 'fork', got 'both'"):
        linearize_resume(agent.accessor, before[5].config, strategy="both")  # type: ignore[arg-type]


def test_the_fork_is_left_to_langgraph_only_where_its_forks_are_right() -> None:
    agent, before = prepared(WRAPS["observing"])
    config = before[5].config
    if forks_are_right():
        assert linearize_resume(agent.accessor, config, strategy="fork") is None
        assert config["configurable"]["checkpoint_id"]
    else:
        with pytest.raises(CheckpointResumeError, match="could not fork its thread"):
            linearize_resume(agent.accessor, config, strategy="fork", run_id="r")
    assert history(agent) == before
