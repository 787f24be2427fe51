"""Random mixes of legal flows and forks on one thread.

What begins at the head always passes. What begins elsewhere is refused, and then the thread
reads as it did before; or it left no second child, and then it was no fork. Whatever happened,
the delta channel reads like the plain channel that was fed alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.errors import EmptyInputError
from langgraph.graph import END
from langgraph.types import Command, Overwrite, StateUpdate, interrupt

from deerflow_saver import CachedHistorySaver, NonHeadWriteError, WriteSlotTakenError
from guard.audit import findings, written
from guard.latency import LATENCIES, Delay, Latency
from guard.matrix import FULL
from guard.scenarios.env import Durability, Env, Face, finish
from guard.scenarios.kinds import heard, say
from guard.scenarios.nodes import speak
from guard.scenarios.raw import put_copy, row
from guard.scenarios.updates import INPUT
from guard.storage import Dump, Memory, Place, Postgres, Sqlite
from support.upstream import loses_updates, reloads_what_ran, updates_show_delta

THREAD: Any = {"configurable": {"thread_id": "thread"}}
DELTA = frozenset({"log"})

Act = Literal[
    "turn", "asking turn", "go on", "update a", "update b", "update end", "update input",
    "overwrite", "bulk", "command", "goto", "put", "put_writes",
]  # fmt: skip
ACTS: tuple[Act, ...] = Act.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Step:
    """One act at the head, or at an older checkpoint, counted from the head and around again."""

    act: Act
    back: int
    named: bool
    """Whether the head is addressed by its id."""
    restarts: bool
    """Whether another wrapper takes over before it."""


steps = st.lists(
    st.builds(
        Step,
        act=st.sampled_from(ACTS),
        back=st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8]),
        named=st.booleans(),
        restarts=st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=12,
)


def effort(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples * (20 if FULL else 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class Conversation:
    """A thread that steps are taken on, and what it looks like from outside."""

    def __init__(
        self, inner: Any, place: Place, durability: Durability, face: Face, guard: str
    ) -> None:
        self._inner = inner
        self._guard = guard
        self._place = place
        self._axes = (durability, face)
        self._count = 0
        self.take_over()

    def take_over(self) -> None:
        """Go on with a new wrapper, as another process would."""
        self.env = Env(CachedHistorySaver(self._inner, guard=self._guard), "mixed", *self._axes)
        self.graph = self._graph(self.env)

    @staticmethod
    def _graph(env: Env) -> Any:
        def may_ask(state: Any) -> Any:
            answer = interrupt("well?") if state.get("go") == "ask" else "unasked"
            return say(f"m{heard(state)}{answer}")

        return env.chain(("a", speak("a")), ("m", may_ask), ("b", speak("b")), frequency=7)

    def look(self) -> Any:
        """The head, as a raw saver of its own reads it."""
        with self._place.looking() as looking:
            graph = self._graph(Env(looking, "mixed", "sync", "invoke"))
            return graph.get_state(THREAD)

    def differing(self) -> list[Any]:
        """States in which the delta channel is not what the plain channel is.

        None are told of a release where that needs no fork.
        """
        if not reloads_what_ran():
            return []
        with self._place.looking() as looking:
            graph = self._graph(Env(looking, "mixed", "sync", "invoke"))
            pairs = [
                (found.values.get("log") or [], found.values.get("ref") or [])
                for found in graph.get_state_history(THREAD)
            ]
        return [pair for pair in pairs if pair[0] != pair[1]]

    def ids(self) -> list[str]:
        """The stored checkpoints, newest first."""
        return sorted((found[2] for found in self._place.dump()["checkpoints"]), reverse=True)

    async def take(self, step: Step) -> None:
        """Take a step and look at what it did."""
        if step.restarts:
            self.take_over()
        ids = self.ids()
        back = step.back % len(ids) if ids else 0
        config = THREAD
        if ids and (back or step.named):
            config = self.env.thread(checkpoint_ns="", checkpoint_id=ids[back])
        before, looked = self._place.dump(), self.look()
        try:
            await self._act(step.act, config)
        except EmptyInputError:
            pass  # LangGraph: the addressed checkpoint has nothing left to run
        except NonHeadWriteError as error:
            copied = step.act == "put" and error.reason == "unapplied writes"
            self._assert_fork(step, error, before, looked, fork=bool(back) or copied)
        except WriteSlotTakenError as error:
            self._assert_lost_otherwise(step, error, before)
        assert not findings(self._place.dump()), f"{step} forked the thread"
        assert self.differing() == [], f"{step} changed the past"

    def _assert_fork(
        self, step: Step, error: Exception, before: Dump, looked: Any, *, fork: bool
    ) -> None:
        why = f"{step} was refused: {error}"
        assert fork, why
        assert self._left(before) == [], why
        again = self.look()
        assert (again.values, again.next, again.config) == (
            looked.values,
            looked.next,
            looked.config,
        )

    def _assert_lost_otherwise(self, step: Step, error: Exception, before: Dump) -> None:
        """Refused, because LangGraph would lose it without a word."""
        why = f"{step} was refused: {error}"
        assert loses_updates(), why
        assert step.act == "bulk" or self._left(before) == [], why

    def _left(self, before: Dump) -> list[Any]:
        """The rows that have come, but those of writes to other channels than the delta one."""
        rows = written(before, self._place.dump())
        return [found for found in rows if found[0] != "writes" or found[6] in DELTA]

    async def _act(self, act: Act, config: Any) -> None:
        self._count += 1
        env, graph, text = self.env, self.graph, f"in{self._count}"
        if act == "turn":
            await env.invoke(graph, {**say(text), "go": "on"}, config)
        elif act == "asking turn":
            await env.invoke(graph, {**say(text), "go": "ask"}, config)
        elif not self.ids():
            await env.update(graph, config, say(text), as_node="a")
        elif act == "go on":
            await self._go_on(config)
        elif act in ("command", "goto"):
            goto = "b" if act == "goto" else ()
            await env.invoke(graph, Command(update=say(text), goto=goto), config)
        elif act == "put":
            found = await row(env, config)
            await put_copy(env, found, found.config, title=text)
        elif act == "put_writes":
            found = await row(env, config)
            await env.call(env.saver, "put_writes", found.config, [("x", self._count)], text)
        else:
            await self._update(act, config, say(text))

    async def _go_on(self, config: Any) -> None:
        pending = (await self.env.state(self.graph, config)).interrupts
        value = Command(resume=f"r{self._count}") if pending else None
        await self.env.invoke(self.graph, value, config)

    async def _update(self, act: Act, config: Any, values: Any) -> None:
        env, graph = self.env, self.graph
        if act == "bulk":
            await env.bulk(graph, config, [StateUpdate(values, "a")], [StateUpdate(values, "b")])
        elif act == "overwrite":
            fresh = {name: Overwrite(texts) for name, texts in values.items()}
            await env.update(graph, config, fresh, as_node="b")
        elif act == "update end":
            await env.update(graph, config, None, as_node=END)
        else:
            nodes = {"update a": "a", "update b": "b", "update input": INPUT}
            await env.update(graph, config, values, as_node=nodes[act])


async def converse(
    place: Place,
    taken: list[Step],
    durability: Durability,
    face: Face,
    delay: Delay,
    guard: str = "refuse",
) -> None:
    async with place.opened(face, Latency(delay, DELTA)) as inner:
        conversation = Conversation(inner, place, durability, face, guard)
        if not updates_show_delta():  # what a thread has never shown, no guard can know
            await conversation.take(Step("turn", 0, named=False, restarts=False))
        for step in taken:
            await conversation.take(step)


def hold(place: Place, *case: Any) -> None:
    running = converse(place, *case)
    if case[2] == "invoke":
        finish(running)
    else:
        asyncio.run(running)


anything = given(
    taken=steps,
    durability=st.sampled_from(["sync", "async", "exit"]),
    delay=st.sampled_from(LATENCIES),
)
every_face = pytest.mark.parametrize("face", ["invoke", "ainvoke"])


@every_face
@effort(80)
@anything
def test_memory_keeps_a_line(taken: Any, durability: Any, delay: Any, face: Any) -> None:
    hold(Memory(), taken, durability, face, delay)


@every_face
@effort(15)
@anything
def test_sqlite_keeps_a_line(
    taken: Any, durability: Any, delay: Any, face: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("threads")
    hold(Sqlite(folder), taken, durability, face, delay)


@every_face
@effort(10)
@anything
def test_postgres_keeps_a_line(
    taken: Any, durability: Any, delay: Any, face: Any, shared_postgres: str
) -> None:
    hold(Postgres(shared_postgres), taken, durability, face, delay)


@every_face
@pytest.mark.parametrize("act", ["turn", "update b", "put", "goto", "bulk"])
def test_without_the_guard_such_a_mix_leaves_the_line(act: Any, face: Any) -> None:
    turns = [Step("turn", back=0, named=False, restarts=False)] * 2
    fork = Step(act, back=4, named=False, restarts=False)
    with pytest.raises(AssertionError, match="forked the thread"):
        hold(Memory(), [*turns, fork], "sync", face, "prompt", "off")
