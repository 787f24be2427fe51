"""One side of the comparison: a saver, raw or wrapped, under the same agent, with a stopwatch."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateSnapshot

from deerflow_saver import CachedHistorySaver
from deerflow_saver._probe import traits_of
from deerflow_saver.cli.agent import CHANNEL, CONFIG, Graph, build_agent, question
from deerflow_saver.cli.backends import Place, open_saver
from deerflow_saver.cli.comparing import settled

__all__ = ["NAMES", "READ_LIMIT", "Agent", "Name", "Side", "newest_states", "open_side"]

Name = Literal["raw", "wrapped"]
NAMES: tuple[Name, Name] = ("raw", "wrapped")
READ_LIMIT = 10
"""How many items of the state history a reader asks for, as a page of a debugger would."""


@dataclass(frozen=True, slots=True)
class Agent:
    """What both sides' agents have in common."""

    snapshot_frequency: int
    payload_bytes: int

    def on(self, saver: BaseCheckpointSaver[Any]) -> Graph:
        """The compiled graph."""
        return build_agent(
            saver, snapshot_frequency=self.snapshot_frequency, payload_bytes=self.payload_bytes
        )


@dataclass
class Side:
    """A saver at work; `saver` is what the application would hold, `inner` what stores."""

    name: Name
    agent: Agent
    saver: Any
    inner: BaseCheckpointSaver[Any]
    counts: Counter[str]
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def __post_init__(self) -> None:
        """Compile the agent twice: as it runs, and past the wrapper."""
        self.graph = self.agent.on(self.saver)
        self.graph_on_inner = self.agent.on(self.inner)

    @contextmanager
    def measured(self, what: str) -> Iterator[None]:
        """Time the block and note the calls that reached the raw saver."""
        before = self.counts.copy()
        began = time.perf_counter()
        yield
        self.seconds[what].append(time.perf_counter() - began)
        self.calls[what].update(self.counts - before)

    def settled(self, read: Any) -> Any:
        """What was read, without the order that the saver's release leaves to chance."""
        return read if traits_of(self.inner).ordered else settled(read)

    def warm_up(self) -> None:
        """Use graph and connection for the first time, on a thread that has nothing to read."""
        self.graph.get_state({"configurable": {"thread_id": "nobody"}})

    def run_turn(self, turn: int) -> None:
        """Ask the agent the turn's question."""
        asked = question(turn, self.agent.payload_bytes)
        with self.measured("turn"):
            self.graph.invoke(asked, CONFIG)

    def state(self) -> StateSnapshot:
        """The state as reloaded from the saver."""
        with self.measured("get_state"):
            return self.graph.get_state(CONFIG)

    def state_history(self) -> list[StateSnapshot]:
        """The newest states."""
        with self.measured("get_state_history"):
            return list(self.graph.get_state_history(CONFIG, limit=READ_LIMIT))

    def head(self) -> RunnableConfig:
        """The config of the newest checkpoint, as LangGraph passes it on."""
        found = self.saver.get_tuple(CONFIG)
        config: RunnableConfig = found.config
        return config

    def delta_history(self, head: RunnableConfig) -> Any:
        """What LangGraph replays to get at the head's messages."""
        with self.measured("get_delta_channel_history"):
            found = self.saver.get_delta_channel_history(config=head, channels=[CHANNEL])
        return found[CHANNEL]


def newest_states(graph: Graph) -> list[StateSnapshot]:
    """The state, and the newest ones of the state history."""
    return [graph.get_state(CONFIG), *graph.get_state_history(CONFIG, limit=READ_LIMIT)]


@contextmanager
def open_side(name: Name, agent: Agent, place: Place) -> Iterator[Side]:
    """A side with a connection of its own and, if wrapped, a cold cache."""
    counts: Counter[str] = Counter()
    with open_saver(place, counts) as inner:
        # Compared with the saver as it is, also where it is wrong
        saver = inner if name == "raw" else CachedHistorySaver(inner, fixes="off")
        yield Side(name, agent, saver, inner, counts)
