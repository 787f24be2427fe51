"""What is kept of a thread before a run, to come back to: the head's id, and what is pending there.

The head's content and its ancestors do not change while the run goes on; what the run may write
on the head is told apart by what was pending there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.gate import judge_row
from deerflow_saver.state.linear_copy import NULL_TASK_ID

__all__ = ["Place", "RollbackPoint", "capturing"]


@dataclass(frozen=True, slots=True)
class RollbackPoint:
    """A thread's head before a run.

    Attributes:
        config: addresses the head: `thread_id`, `checkpoint_ns` and `checkpoint_id`.
        metadata: the head's metadata.
        pending_writes: what was pending there, as `(task id, channel, value)`.
        subgraphs: the same of the subgraphs that had stopped in the middle.

    """

    config: RunnableConfig
    metadata: Mapping[str, Any]
    pending_writes: tuple[tuple[str, str, Any], ...] = ()
    subgraphs: tuple[RollbackPoint, ...] = ()

    @property
    def thread_id(self) -> str | None:
        """The thread."""
        found = configurable(self.config).get("thread_id")
        return None if found is None else str(found)

    @property
    def checkpoint_ns(self) -> str:
        """The namespace; empty for the root graph's."""
        return str(configurable(self.config).get("checkpoint_ns") or "")

    @property
    def checkpoint_id(self) -> str | None:
        """The head."""
        found = configurable(self.config).get("checkpoint_id")
        return found if isinstance(found, str) and found else None

    def everywhere(self) -> Iterator[RollbackPoint]:
        """This one, and those inside."""
        yield self
        for point in self.subgraphs:
            yield from point.everywhere()


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace, with the graph that keeps its state there."""

    graph: Any
    config: RunnableConfig
    """Names the thread and the namespace, and carries the mode."""
    mode: str

    @property
    def prefix(self) -> str:
        """What a task's namespace begins with."""
        checkpoint_ns = configurable(self.config)["checkpoint_ns"]
        return f"{checkpoint_ns}|" if checkpoint_ns else ""

    def inside(self, name: str, task_id: str, graph: Any) -> Place:
        """The namespace of a task that is a subgraph."""
        names = {**configurable(self.config), "checkpoint_ns": f"{self.prefix}{name}:{task_id}"}
        return Place(graph, {**self.config, "configurable": names}, self.mode)


def capturing(place: Place) -> Plan[RollbackPoint | None]:
    """Read a namespace's head; None if it has none.

    A subgraph is read only where a task has left something pending: a question, an error.
    """
    row = yield "get_tuple", place.config
    if row is None:
        return None
    if place.mode == "full":
        yield from judge_row(row, getattr(place.graph, "channels", None))
    pending = tuple((task_id, name, value) for task_id, name, value in row.pending_writes or ())
    stopped: list[RollbackPoint] = []
    for inside in _inside(place, pending):
        point = yield from capturing(inside)
        stopped += [point] if point is not None else []
    names = configurable(place.config)
    own = {
        "thread_id": names["thread_id"],
        "checkpoint_ns": names["checkpoint_ns"],
        "checkpoint_id": row.checkpoint["id"],
    }
    config: RunnableConfig = {"configurable": own}
    return RollbackPoint(config, dict(row.metadata or {}), pending, tuple(stopped))


def _inside(place: Place, pending: tuple[tuple[str, str, Any], ...]) -> Iterator[Place]:
    """Where subgraphs of unfinished tasks may have stopped."""
    task_ids = dict.fromkeys(str(owner) for owner, _, _ in pending if owner != NULL_TASK_ID)
    if not task_ids or not hasattr(place.graph, "get_subgraphs"):
        return
    for name, graph in place.graph.get_subgraphs():
        for task_id in task_ids:
            yield place.inside(name, task_id, graph)
