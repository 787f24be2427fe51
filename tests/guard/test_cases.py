"""Small inputs that end in a wrong state on the raw saver; guarded, they end right or refused.

Each is run without the guard as well, where it must go wrong on at least one durability: a
release of LangGraph that mends a case shows here. `log` is a delta channel and `ref` a plain
one fed alike, so wherever they differ the state is wrong.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver, NonHeadWriteError, WriteSlotTakenError
from guard.audit import written
from guard.cells import Cell, Outcome, play
from guard.latency import Latency
from guard.scenarios.env import Env
from guard.scenarios.interrupts import asking
from guard.scenarios.kinds import say
from guard.scenarios.meeting import Meeting
from guard.scenarios.meetings import attending
from guard.scenarios.nodes import ask, silent, speak
from guard.scenarios.registry import Scenario
from guard.scenarios.updates import pair
from guard.storage import Memory, Place
from guard.verdicts import assert_in_line, told_alike
from support.upstream import gives_up_after_a_failed_save, reloads_what_ran

DURABILITIES: tuple[Any, ...] = ("sync", "async", "exit")
FACES: tuple[Any, ...] = ("invoke", "ainvoke")


as_released = pytest.mark.usefixtures("no_fixes")
every_face = pytest.mark.parametrize("face", FACES)
every_durability = pytest.mark.parametrize("durability", DURABILITIES)


def run(body: Any, empty: Callable[[], Place], durability: Any, face: Any, guard: Any) -> Outcome:
    cell = Cell(Scenario(body.__name__, "F", body), "mixed", durability, face)
    return play(cell, empty(), guard=guard)


# -- resumes at checkpoints that the thread has left ----------------------------------------------


async def resume_with_update_on_older_checkpoint(env: Env) -> None:
    graph = env.chain(("ask", ask("ask")))
    await env.invoke(graph, say("in"), env.thread())
    paused = await env.head(graph, env.thread())
    await env.invoke(graph, Command(resume="A"), env.thread())
    env.on_fork()
    await env.invoke(graph, Command(resume="B", update=say("U")), paused)


async def resume_with_update_on_a_finished_checkpoint(env: Env) -> None:
    graph = env.chain(("n", speak("n")))
    await env.invoke(graph, say("in"), env.thread())
    older = await env.head(graph, env.thread())
    await env.update(graph, env.thread(), say("more"), "n")
    env.on_fork()
    await env.invoke(graph, Command(resume="x", update=say("U")), older)


async def resume_on_left_checkpoint(env: Env) -> None:
    graph = env.chain(("ask", ask("ask")))
    await env.invoke(graph, say("in1"), env.thread())
    paused = await env.head(graph, env.thread())
    await env.invoke(graph, say("in2"), env.thread())
    env.on_fork()
    await env.invoke(graph, Command(resume="late"), paused)


async def resume_after_further_turns(env: Env) -> None:
    graph = asking(env)
    await env.invoke(graph, say("in1"), env.thread())
    paused = await env.head(graph, env.thread())
    await env.invoke(graph, Command(resume="yes"), env.thread())
    await env.invoke(graph, say("in2"), env.thread())
    await env.invoke(graph, Command(resume="yes"), env.thread())
    env.on_fork()
    await env.invoke(graph, Command(resume="late", update=say("U")), paused)


RESUMES = (
    resume_with_update_on_older_checkpoint,
    resume_with_update_on_a_finished_checkpoint,
    resume_on_left_checkpoint,
    resume_after_further_turns,
)


@pytest.mark.parametrize("body", RESUMES, ids=lambda body: body.__name__)
@every_durability
@every_face
def test_a_resume_at_a_checkpoint_that_was_left_is_refused_or_right(
    body: Any, empty: Callable[[], Place], durability: Any, face: Any
) -> None:
    guarded = run(body, empty, durability, face, "refuse")
    assert guarded.error is None
    assert_in_line(guarded)
    assert guarded.went_on is None
    if guarded.refusals:
        error = guarded.refusals[0]
        assert isinstance(error, NonHeadWriteError)
        assert error.thread_id == "thread"
        assert error.checkpoint_id != error.head_id
        assert guarded.before is not None
        assert guarded.after is not None
        rows = written(guarded.before, guarded.after)
        assert [row for row in rows if row[0] != "writes" or row[6] == "log"] == []


@as_released
@pytest.mark.parametrize("body", RESUMES, ids=lambda body: body.__name__)
def test_without_the_guard_a_resume_at_a_checkpoint_that_was_left_forks_the_thread(
    body: Any,
) -> None:
    outcomes = [run(body, Memory, *axes, None) for axes in product(DURABILITIES, FACES)]
    assert any(outcome.forked or outcome.disagreeing for outcome in outcomes)


# -- writers that meet ----------------------------------------------------------------------------


def _second(env: Env, what: str) -> Any:
    if what == "run":
        return lambda: env.invoke(pair(env), say("B"), env.thread())
    if what == "command":
        return lambda: env.invoke(pair(env), Command(update=say("B"), goto="b"), env.thread())
    return lambda: env.update(pair(env), env.thread(), say("U"), "b")


def two_writers_on_one_thread(what: str) -> Any:
    async def body(env: Env) -> None:
        await env.invoke(pair(env), say("0"), env.thread())
        reached, done = Meeting(2), Meeting(2)
        graph = attending(env, reached, done)

        async def second() -> Any:
            await env.attend(reached)
            return await _second(env, what)()

        await env.together(
            [reached, done], lambda: env.invoke(graph, say("A"), env.thread()), second
        )

    return body


@pytest.mark.parametrize("what", ["run", "command", "update_state"])
@every_durability
@every_face
def test_of_two_writers_on_a_thread_one_is_refused(
    what: str, empty: Callable[[], Place], durability: Any, face: Any
) -> None:
    guarded = run(two_writers_on_one_thread(what), empty, durability, face, "refuse")
    assert guarded.error is None
    assert len(guarded.refusals) == 1
    assert guarded.returned == 1
    assert_in_line(guarded)
    assert guarded.went_on is None


@as_released
@pytest.mark.parametrize("what", ["run", "command", "update_state"])
@every_durability
@every_face
def test_without_the_guard_both_writers_are_let_through(
    what: str, durability: Any, face: Any
) -> None:
    control = run(two_writers_on_one_thread(what), Memory, durability, face, None)
    assert control.returned == 2
    assert control.forked or control.disagreeing


# -- runs that are cancelled ----------------------------------------------------------------------

ROUNDS = 30


async def _cancel_rounds(place: Place, guard: str | None, durability: Any) -> list[str]:
    """Cancel a run at some point and go on at once; what went wrong, round by round."""
    wrong = []
    # A guard cannot mend what a release gets wrong at the head without any fork
    telling = guard is None or reloads_what_ran()
    async with place.opened("ainvoke", Latency("late-all", frozenset({"log"}))) as inner:
        for number in range(ROUNDS):
            env = _env(inner, guard, durability)
            chance = random.Random(number)
            try:
                await _cancel_and_update(env, f"thread{number}", chance.randrange(40), number)
            except NonHeadWriteError as error:
                wrong.append(f"refused: {error}")
            await env.settled()
            # Where a run goes on behind its own cancelled save, that is refused to it
            behind = [e for e in env.refused if getattr(e, "reason", None) == "orphan"]
            if gives_up_after_a_failed_save() or behind != env.refused:
                wrong += [f"refused: {error}" for error in env.refused]
            for graph, config, _ in env.threads.values() if telling else ():
                for snapshot in await env.history(graph, config):
                    values = snapshot.values
                    if (values.get("log") or []) != (values.get("ref") or []):
                        wrong.append(f"{values.get('log')} is not {values.get('ref')}")
    return wrong


def _env(inner: Any, guard: str | None, durability: Any) -> Env:
    saver = inner if guard is None else CachedHistorySaver(inner, guard=guard)
    env = Env(saver, "mixed", durability, "ainvoke")
    env.refusals = () if guard is None else (NonHeadWriteError,)
    return env


async def _cancel_and_update(env: Env, thread: str, steps: int, number: int) -> None:
    async def node(state: Any) -> Any:
        await asyncio.sleep(0)
        return say("out")

    graph = env.chain(("n", node), ("m", node))
    await env.invoke(graph, say("in0"), env.thread(thread))

    async def begun() -> None:
        for _ in range(steps):  # so many turns of the loop, and not a length of time
            await asyncio.sleep(0)

    await env.cancelled(graph, say("in1"), env.thread(thread), begun())
    if number % 2:
        await env.update(graph, env.thread(thread), say("U"), "n")
    else:
        await env.invoke(graph, say("in2"), env.thread(thread))


@every_durability
async def test_a_thread_goes_on_right_after_a_cancelled_run(
    empty: Callable[[], Place], durability: Any
) -> None:
    assert await _cancel_rounds(empty(), "refuse", durability) == []


@as_released
@pytest.mark.parametrize("durability", ["async", "exit"])
async def test_without_the_guard_a_cancelled_run_is_overtaken(durability: Any) -> None:
    assert await _cancel_rounds(Memory(), None, durability) != []


# -- writes that would be lost --------------------------------------------------------------------


def update_as_a_finished_task(first: Any) -> Any:
    async def body(env: Env) -> None:
        graph = env.fan(("p1", first), ("p2", ask("p2")))
        await env.invoke(graph, say("in"), env.thread())
        env.on_fork()
        await env.update(graph, env.thread(), say("U"), as_node="p1")

    return body


@every_durability
@every_face
def test_an_update_as_a_finished_task_is_not_lost_silently(
    empty: Callable[[], Place], durability: Any, face: Any
) -> None:
    guarded = run(update_as_a_finished_task(silent("p1")), empty, durability, face, "refuse")
    if guarded.error is not None:
        assert guarded.error.startswith(WriteSlotTakenError.__name__)
        assert guarded.before == guarded.after
    else:
        assert guarded.values["thread"][0]["log"] == ["in", "U"]
    assert_in_line(guarded)


@as_released
@every_durability
@every_face
def test_an_update_that_would_be_lost_is_refused(
    empty: Callable[[], Place], durability: Any, face: Any
) -> None:
    guarded = run(update_as_a_finished_task(silent("p1")), empty, durability, face, "refuse")
    assert (guarded.error or "").startswith(WriteSlotTakenError.__name__)
    assert guarded.before == guarded.after
    assert_in_line(guarded)


@as_released
def test_without_the_guard_an_update_as_a_finished_task_is_lost() -> None:
    outcomes = [
        run(update_as_a_finished_task(silent("p1")), Memory, *axes, None)
        for axes in product(DURABILITIES, FACES)
    ]
    assert any(outcome.disagreeing for outcome in outcomes)


@every_durability
@every_face
def test_an_update_as_a_task_that_spoke_replaces_what_it_said(
    empty: Callable[[], Place], durability: Any, face: Any
) -> None:
    body = update_as_a_finished_task(speak("p1"))
    control = run(body, empty, durability, face, None)
    guarded = run(body, empty, durability, face, "refuse")
    assert guarded.refusals == []
    if control.disagreeing:  # an older release keeps what the task said, and loses the update
        assert not reloads_what_ran()
        assert str(guarded.error).startswith(WriteSlotTakenError.__name__)
        assert guarded.before == guarded.after
        return
    assert guarded.error is None
    assert told_alike(control, guarded)


async def update_repeated_with_the_same_values(env: Env) -> None:
    graph = env.fan(("p1", silent("p1")), ("p2", ask("p2")), then=speak("then"))
    await env.invoke(graph, say("in"), env.thread())
    head = (await env.call(env.saver, "get_tuple", env.thread())).config
    for _ in range(2):
        await env.call(env.saver, "put_writes", head, [("log", ["once"])], "a-task-of-its-own")
    await env.invoke(graph, Command(resume="yes"), env.thread())


@every_face
def test_the_same_write_again_stays_no_write_at_all(empty: Callable[[], Place], face: Any) -> None:
    guarded = run(update_repeated_with_the_same_values, empty, "sync", face, "refuse")
    control = run(update_repeated_with_the_same_values, empty, "sync", face, None)
    assert guarded.error is None
    assert guarded.refusals == []
    assert told_alike(control, guarded)
