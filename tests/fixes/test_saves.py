"""Saves that wait in LangGraph's pool for writes that are queued behind them."""

from __future__ import annotations

import asyncio
import collections
import threading
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from deerflow_saver import CachedHistorySaver, fixes
from deerflow_saver.fixes._scenes import State, compiled, said, thread
from fixes.sides import as_released, mended

SLUG = "saves-wait-for-ever"
DURABILITIES = ("sync", "async", "exit")

pytestmark = pytest.mark.usefixtures("as_released")


class Held(InMemorySaver):
    """Holds both workers of a run until `queued` is set; then writes wait for a save before them.

    Attributes:
        came: whether the save of step 0 was made while the next step's writes waited.

    """

    def __init__(self, patience: float) -> None:
        super().__init__()
        self.queued, self._stored = threading.Event(), threading.Event()
        self._patience = patience
        self.came: bool | None = None

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata["step"] == -1:
            self.queued.wait()
        stored = super().put(config, checkpoint, metadata, new_versions)
        if metadata["step"] == 0:
            self._stored.set()
        return stored

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if ("log", ["in"]) in writes:
            self.queued.wait()
        elif ("log", ["first"]) in writes:
            self.came = self._stored.wait(self._patience)
        super().put_writes(config, writes, task_id, task_path)


def goes_ahead(patience: float) -> bool:
    """Whether a save goes ahead of writes that a pool of two workers was given after it."""
    saver = Held(patience)
    nodes = {"first": lambda _: said("first"), "second": lambda _: saver.queued.set()}
    edges = [(START, "first"), ("first", "second"), ("second", END)]
    graph = compiled(nodes, edges, saver=saver)
    graph.invoke(said("in"), {**thread(), "max_concurrency": 2}, durability="async")
    assert graph.get_state(thread()).values == said("in", "first")
    return bool(saver.came)


def test_a_save_waits_for_no_writes_submitted_after_it() -> None:
    defective = as_released(SLUG)
    assert goes_ahead(0.5 if defective else 60) is not defective
    assert mended(SLUG) is defective
    assert goes_ahead(60)
    fixes.revert([SLUG])
    assert as_released(SLUG) is defective


def counting(steps: int, saver: Any, face: str) -> Any:
    """A graph whose node runs `steps` times, one after the other."""

    def node(state: Any) -> Any:
        return said(str(len(state["ref"])))

    async def anode(state: Any) -> Any:
        return node(state)

    builder: Any = StateGraph(State)
    builder.add_node("node", node if face == "sync" else anode)
    builder.add_edge(START, "node")
    builder.add_conditional_edges("node", lambda s: "node" if len(s["ref"]) <= steps else END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("workers", [None, 1, 2])
@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_run_of_many_steps_ends_and_is_stored(
    durability: Any, workers: int | None, face: str
) -> None:
    inner = InMemorySaver()
    graph = counting(60, CachedHistorySaver(inner), face)
    config: Any = {**thread(), "recursion_limit": 100}
    if workers:
        config["max_concurrency"] = workers
    if face == "sync":
        graph.invoke(said("in"), config, durability=durability)
    else:
        asyncio.run(graph.ainvoke(said("in"), config, durability=durability))
    words = ["in", *map(str, range(1, 61))]
    assert graph.get_state(thread()).values == said(*words)
    steps = [row.metadata["step"] for row in inner.list(thread()) if row.metadata["step"] >= 0]
    assert steps == ([60] if durability == "exit" else list(range(60, -1, -1)))


def test_a_checkpoint_is_stored_after_its_parent_and_the_parents_writes() -> None:
    """Also where a step's nodes run side by side in the same pool."""
    writes: collections.Counter[str | None] = collections.Counter()
    expected = [0, 1, 4]  # of a turn's checkpoints: the head has none, the input one, four nodes
    stored: list[str | None] = [None]
    found: list[tuple[bool, int]] = []

    class Ordered(InMemorySaver):
        def put(self, config: Any, checkpoint: Any, *rest: Any) -> Any:
            parent = config["configurable"].get("checkpoint_id")
            found.append((parent in stored, writes[parent]))
            config = super().put(config, checkpoint, *rest)
            stored.append(checkpoint["id"])
            return config

        def put_writes(self, config: Any, *rest: Any) -> None:
            super().put_writes(config, *rest)
            writes[config["configurable"]["checkpoint_id"]] += 1

    fixes.apply([SLUG])
    nodes = {name: lambda _: said("out") for name in "abcd"}
    graph = compiled(nodes, saver=Ordered())
    for _ in range(20):
        graph.invoke(said("in"), {**thread(), "max_concurrency": 2})
    assert found == [(True, count) for count in expected] * 20
