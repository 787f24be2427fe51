"""Random walks over one thread: every way to run, answer or update, at the head and before it.

`log` is a delta channel and `ref` a plain one fed alike: after every step all stored
checkpoints must show the same in both.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, interrupt

from deerflow_saver.fixes._scenes import State, said

__all__ = ["DURABILITIES", "Wanderer", "walk", "wander"]

DURABILITIES: tuple[Any, ...] = ("sync", "async", "exit")


def _ask(name: str, questions: int) -> Callable[[Any], Any]:
    def node(state: Any) -> Any:
        if len(state["ref"]) % 2:
            return said(name)
        return said(*(f"{name}-{interrupt(f'{name}{i}')}" for i in range(questions)))

    return node


def _overwrite(*words: str) -> dict[str, Any]:
    return {"log": Overwrite(list(words)), "ref": Overwrite(list(words))}


class Wanderer:
    """One thread, and what is done to it."""

    def __init__(self, seed: int, saver: Any = None, *, is_async: bool = False) -> None:
        """Build one of a few graphs."""
        self.random = random.Random(seed)
        self.saver = InMemorySaver() if saver is None else saver
        self.is_async = is_async
        self.thread = {"configurable": {"thread_id": f"{seed}"}}
        self.graph = self._build()
        self.words = 0
        self.done: list[str] = []

    def _build(self) -> Any:
        nodes: dict[str, Any] = {
            "one": _ask("one", 1),
            "two": _ask("two", self.random.choice([1, 2])),
            "silent": lambda _state: {"other": 1},
        }
        builder = StateGraph(State)
        first = self.random.sample(sorted(nodes), self.random.choice([1, 2, 3]))
        for name in first:
            builder.add_node(name, nodes[name])
            builder.add_edge(START, name)
        if self.random.random() < 0.5:
            builder.add_node("then", lambda _state: said("then"))
            for name in first:
                builder.add_edge(name, "then")
            builder.add_edge("then", END)
        return builder.compile(checkpointer=self.saver)

    def say(self) -> dict[str, Any]:
        self.words += 1
        return said(f"w{self.words}")

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.is_async:
            return await getattr(self.graph, f"a{name}")(*args, **kwargs)
        return getattr(self.graph, name)(*args, **kwargs)

    async def history(self) -> list[Any]:
        if self.is_async:
            return [s async for s in self.graph.aget_state_history(self.thread)]
        return list(self.graph.get_state_history(self.thread))

    async def step(self) -> None:
        """One random operation; one that LangGraph refuses is none."""
        states = await self.history()
        at = self.random.choice([None, None, *states])
        config = self.thread if at is None else at.config
        state = states[0] if at is None else at
        name, operation = self.random.choice(self._operations(state))
        self.done.append(f"{name} at {'head' if at is None else states.index(at)} of {len(states)}")
        try:
            await operation(config)
        except (EmptyInputError, InvalidUpdateError, RuntimeError, ValueError) as error:
            self.done[-1] += f" -> {type(error).__name__}"

    def _operations(self, state: Any) -> list[tuple[str, Callable[[Any], Any]]]:
        answer = self._answer(state)
        return [
            ("input", lambda config: self._run(self.say(), config)),
            ("resume", lambda config: self._run(Command(resume=answer), config)),
            ("answer+update", self._later(lambda: Command(resume=answer, update=self.say()))),
            ("update", self._later(lambda: Command(update=self.say()))),
            ("overwrite", self._later(lambda: Command(update=_overwrite("O")))),
            ("answer+overwrite", self._later(lambda: Command(resume="x", update=_overwrite("P")))),
            ("again", lambda config: self._run(None, config)),
            ("update_state", self._update),
        ]

    def _later(self, make: Callable[[], Any]) -> Callable[[Any], Any]:
        return lambda config: self._run(make(), config)

    def _answer(self, state: Any) -> Any:
        interrupts = list(state.interrupts)
        if len(interrupts) < 2 or self.random.random() < 0.2:
            return "yes"
        some = self.random.sample(interrupts, self.random.randint(1, len(interrupts)))
        return {interrupt.id: "some" for interrupt in some}

    async def _run(self, value: Any, config: Any) -> None:
        await self.call("invoke", value, config, durability=self.random.choice(DURABILITIES))

    async def _update(self, config: Any) -> None:
        node = self.random.choice(sorted(set(self.graph.nodes) - {START}))
        values = self.random.choice([self.say(), _overwrite("V")])
        await self.call("update_state", config, values, as_node=node)

    async def disagreement(self) -> str | None:
        """Where a stored checkpoint shows another `log` than `ref`, and what was done."""
        for state in [*await self.history(), await self.call("get_state", self.thread)]:
            log, ref = state.values.get("log") or [], state.values.get("ref") or []
            if log != ref:
                return f"log {log}, ref {ref} after {self.done}"
        return None


async def walk(seed: int, steps: int, saver: Any = None, *, is_async: bool = False) -> str | None:
    """Take `steps` steps; the first disagreement, or None."""
    wanderer = Wanderer(seed, saver, is_async=is_async)
    await wanderer.call("invoke", wanderer.say(), wanderer.thread)
    for _ in range(steps):
        try:
            await wanderer.step()
            found = await wanderer.disagreement()
        except InvalidUpdateError:
            return None  # two pending Overwrites: the thread cannot be read, delta or not
        if found:
            return found
    return None


def wander(seed: int, steps: int, saver: Any = None, *, is_async: bool = False) -> str | None:
    """`walk` on an event loop of its own."""
    return asyncio.run(walk(seed, steps, saver, is_async=is_async))
