"""A run that is rolled back leaves the thread as it found it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import (
    acapture_rollback_point,
    arestore,
    capture_rollback_point,
    linearize_resume,
    restore,
)
from support.faulty import Faulty
from support.modes import thread
from support.rollback_threads import (
    AFTER,
    HEADS,
    RUN,
    TURN,
    WHERE,
    AsyncStopping,
    Stopped,
    Stopping,
    acancel,
    amake,
    cancel,
    config_of_run,
    inputs,
    make,
    shown,
    told,
)
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

Wrap = Callable[[Any], Any]
WRAPS: dict[str, Wrap] = {
    "refusing": CachedHistorySaver,
    "unguarded": lambda saver: CachedHistorySaver(saver, guard="off"),
    "raw": lambda saver: saver,
}
every_wrap = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
every_head = pytest.mark.parametrize("head", HEADS)
both_modes = pytest.mark.parametrize("mode", ["full", "delta"])
every_durability = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def goes_on(agent: Stopping, head: str) -> Any:
    """What is shown when the head has gone on, and after another turn."""
    if head in AFTER:
        agent.graph.invoke(AFTER[head], thread())
    after = in_order(shown(agent))
    agent.graph.invoke({"log": ["next"], "do": "x"}, thread())
    return after, in_order(shown(agent))


def in_order(state: Any) -> Any:
    """What one step logs comes in no order that releases agree on."""
    values, *others = state
    return {**values, "log": sorted(values.get("log", ()))}, *others


def ids(saver: Any) -> set[str]:
    return {row.checkpoint["id"] for row in saver.list(thread())}


@every_durability
@every_head
@both_modes
def test_state_tasks_and_questions_are_those_from_before_the_run(
    mode: str, head: str, durability: Any
) -> None:
    """Wherever the run ended, whatever was run; and the thread goes on as if it had not been."""
    control = Stopping(mode, InMemorySaver())
    make(control, head, durability=durability)
    expected = goes_on(control, head)
    moved = 0
    for number, (where, given) in enumerate(
        (where, given) for where in WHERE for given in inputs(head)
    ):
        saver = InMemorySaver()
        agent = Stopping(mode, list(WRAPS.values())[number % 3](saver))
        make(agent, head, durability=durability)
        before, rows = shown(agent), ids(saver)
        point = capture_rollback_point(agent.accessor, thread())
        assert (point is None) == (head == "empty")
        cancel(agent, given, where, durability=durability)
        moved += shown(agent) != before
        ran = ids(saver)
        assert restore(agent.accessor, point, thread_id="1", run_id=RUN)
        assert shown(agent) == before == shown(Stopping(mode, saver))
        left = ids(saver)
        assert left >= (ran if point else rows), "what the run did stays in the history"
        assert len(left - ran) <= 1
        assert restore(agent.accessor, point, thread_id="1", run_id=RUN)
        assert ids(saver) == left, "it is restored once"
        assert goes_on(agent, head) == expected
        assert in_order(shown(Stopping(mode, saver))) == expected[1]
    assert moved > 0


@every_durability
@every_head
@both_modes
async def test_so_are_those_of_a_task_that_is_cancelled(
    mode: str, head: str, durability: Any
) -> None:
    for number, (where, given) in enumerate(
        (where, given) for where in WHERE for given in inputs(head)
    ):
        saver = InMemorySaver()
        agent = AsyncStopping(mode, list(WRAPS.values())[number % 3](saver))
        await amake(agent, head, durability=durability)
        before = told(await agent.accessor.aget(thread()))
        point = await acapture_rollback_point(agent.accessor, thread())
        await acancel(agent, given, where, durability=durability)
        assert await arestore(agent.accessor, point, thread_id="1", run_id=RUN)
        assert told(await agent.accessor.aget(thread())) == before
        assert shown(Stopping(mode, saver)) == before
        await agent.graph.ainvoke(inputs(head)[-1], thread())
        state = await agent.accessor.aget(thread())
        assert told(state) == shown(Stopping(mode, saver))
        log = state.values["log"]
        assert log.count("run") == (inputs(head)[-1] is TURN)
        if head == "interrupted":
            assert "answered earlylate" in log


@both_modes
@every_sync_case
def test_on_every_saver(case: SaverCase, storage: Storage, mode: str) -> None:
    """Each head is the name of its thread."""
    before = {}
    with case.open(storage) as saver:
        agent = Stopping(mode, CachedHistorySaver(saver))
        for head in HEADS:
            make(agent, head, head)
            before[head] = shown(agent, head)
            point = capture_rollback_point(agent.accessor, thread(head))
            cancel(agent, inputs(head)[-1], "after", head)
            assert shown(agent, head) != before[head]
            assert restore(agent.accessor, point, thread_id=head, run_id=RUN)
            assert shown(agent, head) == before[head]
    with case.open(storage) as saver:
        cold = Stopping(mode, saver)
        assert {head: shown(cold, head) for head in HEADS} == before
        for head, given in AFTER.items():
            cold.graph.invoke(given, thread(head))
            assert cold.accessor.get(thread(head)).values["log"].count("work") == 2


@both_modes
@every_async_case
async def test_on_every_saver_of_a_loop(case: SaverCase, storage: Storage, mode: str) -> None:
    async with case.aopen(storage) as saver:
        agent = AsyncStopping(mode, CachedHistorySaver(saver))
        assert await acapture_rollback_point(agent.accessor, thread()) is None
        await acancel(agent, TURN, "after")
        assert await arestore(agent.accessor, None, thread_id="1", run_id=RUN)
        assert not (await agent.accessor.aget(thread())).values
        await amake(agent, "interrupted")
        before = told(await agent.accessor.aget(thread()))
        point = await acapture_rollback_point(agent.accessor, thread())
        await acancel(agent, AFTER["interrupted"], "after")
        # The sync face of these savers hands over to their loop
        assert await asyncio.to_thread(restore, agent.accessor, point, run_id=RUN)
        assert told(await agent.accessor.aget(thread())) == before
        await acancel(agent, TURN, "after")
        assert await arestore(agent.accessor, point, run_id=RUN)
    async with case.aopen(storage) as saver:
        cold = AsyncStopping(mode, saver)
        assert told(await cold.accessor.aget(thread())) == before
        out = await cold.graph.ainvoke(Command(resume="late"), thread())
        assert "answered earlylate" in out["log"]


# -- what it stands on --------------------------------------------------------------------------


def test_a_full_thread_is_forked_and_a_delta_thread_goes_on_from_its_head() -> None:
    for mode in ("full", "delta"):
        saver = InMemorySaver()
        agent = Stopping(mode, CachedHistorySaver(saver))
        make(agent, "clean")
        point = capture_rollback_point(agent.accessor, thread())
        assert point is not None
        cancel(agent, TURN, "after")
        left = agent.accessor.get(thread()).config["configurable"]["checkpoint_id"]
        assert restore(agent.accessor, point)
        row = saver.get_tuple(thread())
        assert row is not None
        assert row.parent_config is not None
        parent = row.parent_config["configurable"]["checkpoint_id"]
        assert parent == (point.checkpoint_id if mode == "full" else left)
        assert row.metadata["source"] == "update"
        assert row.metadata["deerflow_rolled_back_to"] == point.checkpoint_id  # type: ignore[typeddict-item]


def test_a_guard_that_refuses_every_fork_gets_none() -> None:
    saver = InMemorySaver()
    agent = Stopping("full", CachedHistorySaver(saver, guard="refuse-all"))
    make(agent, "interrupted")
    before = shown(agent)
    point = capture_rollback_point(agent.accessor, thread())
    cancel(agent, AFTER["interrupted"], "after")
    left = agent.accessor.get(thread()).config["configurable"]["checkpoint_id"]
    assert restore(agent.accessor, point)
    assert shown(agent) == before
    row = saver.get_tuple(thread())
    assert row is not None
    assert row.parent_config is not None
    assert row.parent_config["configurable"]["checkpoint_id"] == left


@every_wrap
def test_the_turn_that_was_left_stays_readable(wrap: Wrap) -> None:
    agent = Stopping("delta", wrap(InMemorySaver()))
    make(agent, "interrupted")
    point = capture_rollback_point(agent.accessor, thread())
    cancel(agent, AFTER["interrupted"], "after")
    left = agent.accessor.history(thread())
    assert restore(agent.accessor, point)
    agent.graph.invoke(Command(resume="other"), thread())
    kept = {state.config["configurable"]["checkpoint_id"]: state for state in left}
    history = agent.accessor.history(thread())
    found = [s for s in history if s.config["configurable"]["checkpoint_id"] in kept]
    assert len(found) == len(left)
    for state in found:
        assert state.values == kept[state.config["configurable"]["checkpoint_id"]].values


@every_wrap
def test_an_edit_that_fails_gives_back_the_turn_that_was_edited(wrap: Wrap) -> None:
    """Captured before going back, so what is restored is not the state gone back to."""
    agent = Stopping("delta", wrap(InMemorySaver()))
    make(agent, "clean")
    base = agent.accessor.get(thread()).config
    agent.graph.invoke({"log": ["question"], "do": "x"}, thread())
    before = shown(agent)
    config = config_of_run()
    point = capture_rollback_point(agent.accessor, config)
    config["configurable"].update(base["configurable"])
    assert linearize_resume(agent.accessor, config, run_id=RUN) is not None
    assert shown(agent) != before
    cancel(agent, TURN, "after")
    assert restore(agent.accessor, point, run_id=RUN)
    assert shown(agent) == before
    log = agent.graph.invoke({"log": ["more"], "do": "x"}, thread())["log"]
    assert log[: len(before[0]["log"]) + 1] == [*before[0]["log"], "more"]


def test_capturing_reads_one_row_and_makes_no_value() -> None:
    agent = Stopping("delta", InMemorySaver())
    make(agent, "interrupted")
    counting = Faulty(agent.accessor.checkpointer, -1, lambda: None)
    watched = Stopping("delta", counting)
    assert capture_rollback_point(watched.accessor, thread()) is not None
    assert counting._self_calls == ["get_tuple"]


def test_a_saver_that_chooses_rows_by_more_than_the_thread_is_told_it() -> None:
    class Tenants(InMemorySaver):
        def get_tuple(self, config: Any) -> Any:
            assert config["configurable"]["tenant"] == "a"
            return super().get_tuple(config)

        def put(self, config: Any, *args: Any) -> Any:
            assert config["configurable"]["tenant"] == "a"
            return super().put(config, *args)

    agent = Stopping("full", Tenants())
    config = thread(tenant="a")
    agent.graph.invoke({"log": ["one"], "do": "x"}, config)
    before = told(agent.graph.get_state(config))
    point = capture_rollback_point(agent.accessor, config)
    agent.graph.invoke(TURN, config)
    assert restore(agent.accessor, point, config=config)
    assert told(agent.graph.get_state(config)) == before


@pytest.mark.parametrize("goto", [(), "close"])
@both_modes
def test_what_a_command_wrote_on_the_head_is_part_of_it_once(mode: str, goto: Any) -> None:
    saver = InMemorySaver()
    agent = Stopping(mode, CachedHistorySaver(saver))
    make(agent, "interrupted")
    agent.graph.invoke(Command(update={"log": ["by command"]}, goto=goto), thread())
    before = shown(agent)
    assert "by command" in before[0]["log"]
    point = capture_rollback_point(agent.accessor, thread())
    cancel(agent, TURN, "after")
    assert restore(agent.accessor, point)
    assert shown(agent) == before == shown(Stopping(mode, saver))
    log = agent.graph.invoke(Command(resume="late"), thread())["log"]
    assert log.count("by command") == log.count("answered earlylate") == 1
    assert log.count("work") == 2


def test_a_restored_full_thread_is_read_though_the_run_wrote_what_no_checkpoint_stores() -> None:
    agent = Stopping("full", CachedHistorySaver(InMemorySaver()))
    make(agent, "clean")
    agent.stop = "plan"
    with pytest.raises(Stopped):
        agent.graph.invoke(TURN, thread())
    agent.stop = None
    before = shown(agent)
    point = capture_rollback_point(agent.accessor, thread())
    agent.graph.invoke(None, config_of_run())  # its hint is on the head
    assert restore(agent.accessor, point)
    assert shown(agent) == before
