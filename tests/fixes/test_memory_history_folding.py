"""`InMemorySaver`'s delta histories of threads that turned from full to delta."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from deerflow_saver import CachedHistorySaver, fixes
from deerflow_saver.fixes._scenes import State, said
from fixes.sides import as_released, mended

SLUG = "memory-history-folding"
NAMES = ("get_delta_channel_history", "aget_delta_channel_history")
THREAD: Any = {"configurable": {"thread_id": "1"}}

pytestmark = pytest.mark.usefixtures("as_released")


class Full(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    ref: Annotated[list[str], operator.add]


def graph(schema: Any, saver: Any) -> Any:
    builder: Any = StateGraph(schema)
    builder.add_node("node", lambda state: said(f"out{len(state['ref'])}"))
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver)


def migrated(saver: Any) -> list[Any]:
    """A thread that runs twice with full channels, twice with delta ones: its states."""
    for schema in (Full, State):
        for i in (1, 2):
            graph(schema, saver).invoke(said(f"{schema.__name__}{i}"), THREAD)
    return [state.values for state in graph(State, saver).get_state_history(THREAD)]


def wrong(states: list[Any]) -> list[Any]:
    return [s for s in states if (s.get("log") or []) != (s.get("ref") or [])]


def test_a_migrated_thread_keeps_its_first_delta_write() -> None:
    defective = as_released(SLUG)
    assert bool(wrong(migrated(InMemorySaver()))) is defective
    assert mended(SLUG) is defective
    assert wrong(migrated(InMemorySaver())) == []
    assert wrong(migrated(CachedHistorySaver(InMemorySaver()))) == []


@pytest.mark.parametrize("face", ["sync", "async"])
def test_the_histories_are_those_of_the_base_class(face: str) -> None:
    saver = InMemorySaver()
    migrated(saver)
    fixes.apply([SLUG])
    configs = [THREAD, *(row.config for row in saver.list(THREAD))]
    for config in configs:
        given = {"config": config, "channels": ["log", "ref", "none"]}
        if face == "sync":
            found = saver.get_delta_channel_history(**given)
        else:
            found = asyncio.run(saver.aget_delta_channel_history(**given))
        assert found == BaseCheckpointSaver.get_delta_channel_history(saver, **given)


class Own(InMemorySaver):
    """A subclass with a walk of its own."""

    def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        return dict.fromkeys(channels, "its own")


def test_a_subclass_with_a_walk_of_its_own_is_respected() -> None:
    fixes.apply([SLUG])
    found = Own().get_delta_channel_history(config=THREAD, channels=["log"])
    assert found == {"log": "its own"}


def test_revert_gives_the_functions_back() -> None:
    originals = [vars(InMemorySaver)[name] for name in NAMES]
    fixes.apply([SLUG])
    fixes.revert([SLUG])
    assert all(vars(InMemorySaver)[n] is o for n, o in zip(NAMES, originals, strict=True))
