"""What a scenario works with: the cell's savers, its stopwatch, and the comparison with raw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.bench import conversation
from deerflow_saver.bench.case import Case
from deerflow_saver.bench.conversation import CHANNEL, Graph, Kind, Thread
from deerflow_saver.bench.digests import Digest, Mismatch
from deerflow_saver.bench.face import Face
from deerflow_saver.bench.recording import Recorder
from deerflow_saver.bench.sides import make
from deerflow_saver.bench.storage import Opened, open_storage, without_durability
from deerflow_saver.bench.stored import StoredLine
from deerflow_saver.cli.comparing import exact, first_difference

__all__ = ["Cell", "Stage", "stage"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One side of a case, and where it keeps its data."""

    case: Case
    side: str
    address: str = ""
    redis: str = ""
    name: str = field(default_factory=lambda: uuid4().hex[:12])
    """In thread ids, and as the database's name in Redis."""


@dataclass(slots=True)
class Stage:
    """The open cell."""

    cell: Cell
    raw: Any
    saver: Any
    face: Face
    counts: Counter[str]
    recorder: Recorder
    address: Any
    digest: Digest = field(default_factory=Digest)
    threads: list[RunnableConfig] = field(default_factory=list)

    @property
    def case(self) -> Case:
        """The cell's case."""
        return self.cell.case

    def graph(self, kind: Kind, saver: Any = None) -> Graph:
        """The graph of that kind on the side's saver, or on another."""
        chosen = self.saver if saver is None else saver
        case = self.case
        return conversation.build(kind, chosen, case.snapshot_frequency, case.payload_bytes)

    def config(self, name: object) -> RunnableConfig:
        """A thread of this cell."""
        thread_id = f"deerflow-saver-bench-{self.cell.name}-{name}"
        config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        self.threads.append(config)
        return config

    def thread(self, kind: Kind, name: object, turns: int) -> Thread:
        """A new thread of that many turns, run through the side's own saver.

        The raw side's thread is grown through a wrapper that is dropped then: what is stored
        is the same, and it takes a fraction of the time.
        """
        config = self.config(name)
        grower = self.saver if self.cell.side != "raw" else wrapped(self.raw)
        thread = self._over(kind, grower, config)
        thread.grow(turns)
        return thread if grower is self.saver else self._over(kind, self.saver, config, turns)

    def stored_line(self, name: object, steps: int, compacted_every: int = 0) -> StoredLine:
        """A new thread of that many checkpoints, stored through the raw saver."""
        case = self.case
        line = StoredLine(
            self.face,
            self.raw,
            self.config(name),
            case.snapshot_frequency,
            case.payload_bytes,
            compacted_every,
        )
        with without_durability(self.raw):
            line.grow(steps)
        return line

    def another(self, raw: Any = None) -> Any:
        """A saver of the same side with nothing cached in this process."""
        cell = self.cell
        chosen = self.raw if raw is None else raw
        guard = cell.case.guard
        return make(cell.side, chosen, guard=guard, redis=cell.redis, prefix=cell.name)

    @contextmanager
    def reopened(self) -> Iterator[tuple[Any, Face]]:
        """A new connection to the same database, with another saver of the same side on it."""
        with open_storage(self.case.backend, self.address, self.counts) as opened:
            yield self.another(opened.saver), opened.face

    def head(self, config: RunnableConfig) -> RunnableConfig:
        """The config of a thread's newest checkpoint."""
        found: RunnableConfig = self.face.call(self.raw, "get_tuple", config).config
        return found

    def history(self, saver: Any, config: RunnableConfig) -> Any:
        """The delta history of the messages, as LangGraph asks for it."""
        asked = {"config": config, "channels": [CHANNEL]}
        return self.face.call(saver, "get_delta_channel_history", **asked)[CHANNEL]

    def compare(self, kind: Kind, configs: list[RunnableConfig]) -> None:
        """Read states through the side and through the raw saver, and add them to the digest.

        Raises:
            Mismatch: they are not the same.

        """
        through, past = self.graph(kind), self.graph(kind, self.raw)
        for config in configs:
            found = self.face.call(through, "get_state", config)
            right = self.face.call(past, "get_state", config)
            difference = first_difference(exact(right), exact(found))
            if difference is not None:
                raise Mismatch(f"{self.case}, {self.cell.side}: {difference}")
            self.digest.add(found)

    def _over(self, kind: Kind, saver: Any, config: RunnableConfig, turns: int = 0) -> Thread:
        graph = self.graph(kind, saver)
        return Thread(kind, graph, self.face, config, self.case.payload_bytes, turns)


def wrapped(raw: Any) -> Any:
    """A wrapper that stores what `raw` alone would."""
    return CachedHistorySaver(raw, guard="off", fixes="off")


@contextmanager
def stage(cell: Cell) -> Iterator[Stage]:
    """Open a cell's savers; in a user's own storage the threads are deleted at the end."""
    counts: Counter[str] = Counter()
    backend = cell.case.backend
    address: Any = InMemorySaver() if backend == "memory" else cell.address
    with ExitStack() as stack:
        opened: Opened = stack.enter_context(open_storage(backend, address, counts))
        saver = make(
            cell.side, opened.saver, guard=cell.case.guard, redis=cell.redis, prefix=cell.name
        )
        recorder = Recorder(counts)
        made = Stage(cell, opened.saver, saver, opened.face, counts, recorder, address)
        try:
            yield made
        finally:
            if backend == "own":
                for config in made.threads:
                    thread_id = config["configurable"]["thread_id"]
                    opened.face.call(saver, "delete_thread", thread_id)
