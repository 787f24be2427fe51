"""A checkpoint made again from a rollback point: content, tasks, and the subgraphs inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base.id import uuid6

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.guard.policy import signal_of
from deerflow_saver.state.linear_copy import (
    NULL_TASK_ID,
    delta_names,
    hydrated,
    linear_copy,
)
from deerflow_saver.state.questions import Unanswerable, scheduled_tasks
from deerflow_saver.state.reattaching import Tasks, TaskWrites, reattached
from deerflow_saver.state.rollback_errors import RollbackError
from deerflow_saver.state.rollback_point import RollbackPoint

__all__ = ["Content", "Copied", "Rollback", "content_of", "with_tasks"]


_TRIPLE = 3


@dataclass(frozen=True, slots=True)
class Rollback:
    """What is to be rolled back, and to where."""

    graph: Any
    saver: Any
    """Conditional on what is read through it."""
    config: RunnableConfig
    """Names the thread, and carries the mode."""
    point: RollbackPoint
    mode: str
    run_id: str | None = None
    forks: bool = True
    """Whether a full thread may be forked."""

    @property
    def thread_id(self) -> str:
        """The thread."""
        return str(configurable(self.config)["thread_id"])

    @property
    def who(self) -> str:
        """The run, in an error."""
        return "Run" if self.run_id is None else f"Run {self.run_id}"

    def at(self, checkpoint_id: str | None, checkpoint_ns: str = "") -> RunnableConfig:
        """The config of a checkpoint of the thread; None: of the head."""
        names = {**configurable(self.config), "checkpoint_ns": checkpoint_ns}
        if checkpoint_id is not None:
            names["checkpoint_id"] = checkpoint_id
        return {**self.config, "configurable": names}

    def refuse_unusable(self) -> None:
        """Refuse a graph without channels, and pending writes that are none.

        Raises:
            RollbackError: there are such.

        """
        if not isinstance(getattr(self.graph, "channels", None), Mapping):
            raise self._error(f"{self.who} could not inspect the state schema for rollback")
        for found in self.point.everywhere():
            for write in found.pending_writes:
                self._refuse_malformed(write)

    def _refuse_malformed(self, write: Any) -> None:
        if not isinstance(write, tuple | list) or len(write) != _TRIPLE:
            self.refuse(f"pending_write is not a 3-tuple: {write!r}", "Capture it again.")
        task_id, channel, _ = write
        if not isinstance(channel, str):
            why = f"pending_write has non-string channel: task_id={task_id}, channel={channel!r}"
            self.refuse(why, "Capture it again.")

    def refuse(self, why: str, note: str) -> NoReturn:
        """Raise the error that the run cannot be rolled back."""
        error = self._error(f"{self.who} rollback failed: {why}")
        error.add_note(f"Thread {self.thread_id!r}: nothing was changed. {note}")
        raise error

    def refuse_missing(self, checkpoint_id: str | None) -> NoReturn:
        """Raise the error that what is to be copied was deleted."""
        self.refuse(
            f"checkpoint {checkpoint_id} is not stored any more",
            "Somebody has deleted it, or the thread.",
        )

    def refuse_answer(self, why: str) -> NoReturn:
        """Raise the error that the saver's answer to `put` is none."""
        raise self._error(f"{self.who} rollback restore {why}")

    def _error(self, message: str) -> RollbackError:
        return RollbackError(
            message, thread_id=self.thread_id, checkpoint_id=self.point.checkpoint_id
        )


class Content(NamedTuple):
    """What a copy holds."""

    checkpoint: dict[str, Any]
    new_versions: Mapping[str, Any]
    """Of the channels whose values are stored with it; the others share what is stored."""
    scheduling: dict[str, Any]
    """The same with what a `Command` wrote on the original, which schedules tasks too."""


class Copied(NamedTuple):
    """A checkpoint made again, with all that belongs to it."""

    checkpoint_ns: str
    checkpoint: dict[str, Any]
    metadata: Mapping[str, Any]
    new_versions: Mapping[str, Any]
    pending: list[TaskWrites]
    inside: list[Copied]
    """The subgraphs of its tasks."""


class _Inside(NamedTuple):
    """A subgraph's copy, and the task that the original belongs to."""

    copied: Copied
    task_id: str
    goes_on: bool
    """Whether tasks are left to run there."""


def content_of(
    asked: Rollback, graph: Any, point: RollbackPoint, row: Any, head: Any
) -> Plan[Content]:
    """The content of `row` as it was captured, for a checkpoint that comes after `head`.

    Where nothing has to be put into its values, it shares the stored ones.
    """
    delta = delta_names(graph.channels)
    _refuse_unknown_channels(asked, delta, row, head)
    if delta:
        copied = yield from _linear(asked, graph, row._replace(pending_writes=[]), head)
        versions = copied["channel_versions"]
    else:
        step = head.metadata.get("step", 0)
        new = {"id": str(uuid6(clock_seq=step)), "ts": datetime.now(UTC).isoformat()}
        copied, versions = {**row.checkpoint, **new}, {}
    commanded = [write for write in point.pending_writes if write[0] == NULL_TASK_ID]
    if not commanded:
        return Content(copied, versions, copied)
    # Reducers may change the objects they are given, so these are others
    again = yield "get_tuple", asked.at(row.checkpoint["id"], point.checkpoint_ns)
    if again is None:
        asked.refuse_missing(row.checkpoint["id"])
    pending = asked.saver.serde.loads_typed(asked.saver.serde.dumps_typed(commanded))
    applied = yield from _linear(asked, graph, again._replace(pending_writes=pending), head)
    return Content(copied, versions, applied)


def _linear(asked: Rollback, graph: Any, row: Any, head: Any) -> Plan[dict[str, Any]]:
    source = yield from hydrated(graph.channels, row)
    versions = [v for r in (row, head) for v in r.checkpoint["channel_versions"].values()]
    version = asked.saver.get_next_version(max(versions, default=None), None)
    return linear_copy(source, head, graph.channels, graph.nodes, version)


def _refuse_unknown_channels(asked: Rollback, known: list[str], row: Any, head: Any) -> None:
    """A delta channel that the graph does not know has no value to be copied."""
    shown: set[str] = set()
    for r in (row, head):
        shown |= signal_of(r.metadata, r.checkpoint["channel_values"]).channels
    lost = sorted(shown - set(known) - set(row.checkpoint["channel_values"]))
    if lost:
        asked.refuse(
            f"the graph does not have the thread's delta channel {', '.join(lost)}",
            "Use the graph that wrote it.",
        )


def with_tasks(
    asked: Rollback,
    graph: Any,
    point: RollbackPoint,
    row: Any,
    made: tuple[Content, Mapping[str, Any]],
    ids: dict[str, str],
    checkpoint_ns: str = "",
) -> Plan[Copied]:
    """The copy with what was pending, under its tasks' new ids.

    Args:
        asked: the rollback.
        graph: the namespace's graph.
        point: what was captured.
        row: the original.
        made: the copy's content and metadata.
        ids: filled with the interrupts' new ids.
        checkpoint_ns: the copy's namespace.

    """
    (checkpoint, versions, scheduling), metadata = made
    if not point.pending_writes:
        return Copied(checkpoint_ns, checkpoint, metadata, versions, [], [])
    serde, spaces = asked.saver.serde, (point.checkpoint_ns, checkpoint_ns)
    old = {**scheduling, "id": row.checkpoint["id"]}, row.metadata
    tasks = Tasks(
        scheduled_tasks(graph, old, serde, spaces[0]),
        scheduled_tasks(
            graph, ({**scheduling, "id": checkpoint["id"]}, metadata), serde, spaces[1]
        ),
        (_prefix(spaces[0]), _prefix(spaces[1])),
    )
    above = {**metadata.get("parents", {}), checkpoint_ns: checkpoint["id"]}
    inside, standing = [], set()
    for stopped in point.subgraphs:
        found = yield from _inside(asked, graph, stopped, (tasks, above), ids)
        if found is not None:
            inside.append(found.copied)
            standing |= {found.task_id} if found.goes_on else set()
    try:
        pending = reattached(point.pending_writes, tasks, ids, standing)
    except Unanswerable as error:
        why = f"{str(error)[:1].upper()}{str(error)[1:]}."
        asked.refuse(f"the question of checkpoint {point.checkpoint_id} cannot be asked again", why)
    return Copied(checkpoint_ns, checkpoint, metadata, versions, pending, inside)


def _prefix(checkpoint_ns: str) -> str:
    return f"{checkpoint_ns}|" if checkpoint_ns else ""


def _inside(
    asked: Rollback,
    graph: Any,
    stopped: RollbackPoint,
    above: tuple[Tasks, dict[str, str]],
    ids: dict[str, str],
) -> Plan[_Inside | None]:
    """The copy of a subgraph that had stopped, in the namespace of its task's new id."""
    tasks, parents = above
    name, _, task_id = stopped.checkpoint_ns.removeprefix(tasks.spaces[0]).partition(":")
    new_id, subgraph = tasks.twin(task_id), dict(graph.get_subgraphs()).get(name)
    if new_id is None or subgraph is None or tasks.before[task_id][0] != name:
        return None
    row = yield "get_tuple", asked.at(stopped.checkpoint_id, stopped.checkpoint_ns)
    if row is None:
        asked.refuse_missing(stopped.checkpoint_id)
    content = yield from content_of(asked, subgraph, stopped, row, row)
    # Stored values are shared within a namespace only
    content = content._replace(new_versions=content.checkpoint["channel_versions"])
    told = row.metadata
    metadata = {"source": told.get("source"), "step": told.get("step"), "parents": parents}
    place = f"{tasks.spaces[1]}{name}:{new_id}"
    copied = yield from with_tasks(asked, subgraph, stopped, row, (content, metadata), ids, place)
    old = {**content.scheduling, "id": row.checkpoint["id"]}, row.metadata
    left = scheduled_tasks(subgraph, old, asked.saver.serde, stopped.checkpoint_ns)
    return _Inside(copied, task_id, goes_on=bool(left))
