"""Threads that give steps up in full mode and turn delta, on either face of any saver."""

from __future__ import annotations

import contextlib
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from support.savers import SaverCase

__all__ = ["Life", "NoAnswerError", "words_of"]


class NoAnswerError(Exception):
    """What a node fails with."""


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


def schema(*delta: str, frequency: int = 50) -> Any:
    """`log` and `late` as plain or delta channels; `ref` and `ref2` get the same and stay plain."""
    plain: Any = Annotated[list[str], operator.add]
    one: Any = Annotated[list[str], DeltaChannel(extend, snapshot_frequency=frequency)]
    fields = {name: one if name in delta else plain for name in ("log", "late", "ref", "ref2")}
    return TypedDict("State", {"do": str, **fields}, total=False)  # type: ignore[operator]


def said(word: str) -> dict[str, list[str]]:
    return {"log": [word], "ref": [word]}


def speak(state: Any) -> dict[str, list[str]]:
    """Writes what `do` says: nothing, both pairs of channels, or one."""
    kind, _, word = state["do"].partition(" ")
    if kind == "idle":
        return {}
    late = {"late": [word], "ref2": [word]} if kind in {"both", "ask-both"} else {}
    return {**said(word), **late}


def ask(state: Any) -> dict[str, list[str]]:
    """Pauses or fails, so that what `speak` wrote is a pending write."""
    if state["do"].startswith("ask"):
        return said(f"answered {interrupt('?')}")
    if state["do"].startswith("fail"):
        raise NoAnswerError
    return {}


def builder(state: Any) -> Any:
    made = StateGraph(state)
    made.add_node("speak", speak)
    made.add_node("ask", ask)
    for name in ("speak", "ask"):
        made.add_edge(START, name)
        made.add_edge(name, END)
    return made


def words_of(values: Any) -> tuple[Any, Any]:
    """What both channels show, and what the plain ones show, which is right."""
    shown = [values.get(name) or [] for name in ("log", "late")]
    return shown, [values.get(name) or [] for name in ("ref", "ref2")]


@dataclass
class Life:
    """One thread's life, on the face of its saver that works."""

    case: SaverCase
    thread_id: str = "thread"
    delta: tuple[str, ...] = ()
    frequency: int = 50
    durability: str = "sync"
    inside: bool = False
    """Whether it all happens in a subgraph with a memory of its own."""

    @property
    def config(self) -> Any:
        return {"configurable": {"thread_id": self.thread_id}, "max_concurrency": 1}

    def graph(self, saver: Any) -> Any:
        made = builder(schema(*self.delta, frequency=self.frequency))
        if self.inside:
            inner = made.compile(checkpointer=True)
            outer = StateGraph(TypedDict("Outer", {"do": str}))  # type: ignore[operator]
            outer.add_node("inside", inner)
            outer.add_edge(START, "inside")
            return outer.compile(checkpointer=saver)
        return made.compile(checkpointer=saver)

    async def call(self, saver: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        prefix = "a" if self.case.kind == "async" else ""
        answer = getattr(self.graph(saver), prefix + method)(*args, **kwargs)
        return await answer if prefix else answer

    async def run(self, saver: Any, *whats: str) -> None:
        for what in whats:
            if what.startswith("update"):
                word = what.partition(" ")[2]
                await self.call(saver, "update_state", self.config, said(word), as_node="speak")
                continue
            with contextlib.suppress(NoAnswerError):
                await self.call(
                    saver, "invoke", {"do": what}, self.config, durability=self.durability
                )

    async def states(self, saver: Any) -> list[Any]:
        """The values of every checkpoint, newest first, each read by itself."""
        config = self.config
        if self.inside:
            config["configurable"]["checkpoint_ns"] = "inside"
        graph = self.graph(saver)
        if self.case.kind == "async":
            found = [state async for state in graph.aget_state_history(config)]
            return [(await graph.aget_state(state.config)).values for state in found]
        found = list(graph.get_state_history(config))
        return [graph.get_state(state.config).values for state in found]

    async def listed(self, saver: Any) -> list[Any]:
        """The values of every checkpoint as the history shows them, newest first."""
        config = self.config
        if self.inside:
            config["configurable"]["checkpoint_ns"] = "inside"
        graph = self.graph(saver)
        if self.case.kind == "async":
            return [state.values async for state in graph.aget_state_history(config)]
        return [state.values for state in graph.get_state_history(config)]
