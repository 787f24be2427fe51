"""The order of parallel tasks' writes, for savers that replay them by task id.

LangGraph applies the writes of a superstep by task path (`writes_sort_key`). A saver from
before that rule sorts by task id, which is a hash. Memory and Postgres savers of that time
store the path all the same; SQLite savers have no column for it, so the paths that pass
through the wrapper are remembered, and what other processes wrote stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver._recent import Recent
from deerflow_saver.walks.asking import Statement, sorts_by_path

__all__ = ["MemoryPaths", "Paths", "PostgresPaths", "RememberedPaths", "paths_for"]

_REMEMBERED = 8192

# By task id, as the saver sorts: out of order if a path follows a greater one
_DISORDER = """
SELECT 1 FROM (
    SELECT task_path COLLATE "C" AS path, lag(task_path COLLATE "C") OVER (
        PARTITION BY channel, checkpoint_id ORDER BY task_id COLLATE "C", idx
    ) AS before
    FROM checkpoint_writes
    WHERE thread_id = :thread AND checkpoint_ns = :ns AND channel = ANY(:channels)
) AS rows WHERE before > path LIMIT 1
"""
_PATHS = """
SELECT DISTINCT task_id, task_path FROM checkpoint_writes
WHERE thread_id = :thread AND checkpoint_ns = :ns AND checkpoint_id = :checkpoint
"""


class Paths:
    """Where the paths of a saver's tasks are found; requests are those of `Walker`."""

    def disordered(self, names: Mapping[str, Any], channels: Sequence[str]) -> Plan[bool]:
        """Whether a checkpoint of the thread may replay these channels out of order."""
        raise NotImplementedError

    def of_tasks(self, names: Mapping[str, Any]) -> Plan[Mapping[str, str]]:
        """Task paths by task id, of the writes of one checkpoint."""
        raise NotImplementedError

    def note(self, config: Any, task_id: str, task_path: str) -> None:
        """A `put_writes` passes."""

    def ordered(self, row: Any) -> Plan[Any]:
        """The row with its pending writes by path; those of one task keep their order."""
        if row is None or len({task_id for task_id, _, _ in row.pending_writes or ()}) < 2:  # noqa: PLR2004
            return row
        paths = yield from self.of_tasks(configurable(row.config))
        writes = sorted(row.pending_writes, key=lambda write: (paths.get(write[0], ""), write[0]))
        return row._replace(pending_writes=writes)


class MemoryPaths(Paths):
    """`InMemorySaver` keeps a path beside every write."""

    def __init__(self, saver: Any) -> None:
        """Look into `saver`'s own tables."""
        self._saver = saver

    def disordered(self, names: Mapping[str, Any], channels: Sequence[str]) -> Plan[bool]:
        """Whether two tasks wrote one of the channels at one checkpoint."""
        yield from ()
        thread, ns = names.get("thread_id"), names.get("checkpoint_ns", "")
        wanted = set(channels)
        for checkpoint_id in list(self._saver.storage.get(thread, {}).get(ns, {})):
            rows = list(self._saver.writes.get((thread, ns, checkpoint_id), {}).values())
            if len({row[0] for row in rows if row[1] in wanted}) > 1:
                return True
        return False

    def of_tasks(self, names: Mapping[str, Any]) -> Plan[Mapping[str, str]]:
        """The paths stored with one checkpoint's writes."""
        yield from ()
        key = (names.get("thread_id"), names.get("checkpoint_ns", ""), names.get("checkpoint_id"))
        return {row[0]: row[3] for row in list(self._saver.writes.get(key, {}).values())}


class PostgresPaths(Paths):
    """Postgres savers store the path in a column."""

    def disordered(self, names: Mapping[str, Any], channels: Sequence[str]) -> Plan[bool]:
        """Whether task ids and paths sort differently at one checkpoint."""
        values = {
            "thread": names.get("thread_id"),
            "ns": names.get("checkpoint_ns", ""),
            "channels": list(channels),
        }
        return bool((yield "ask", Statement(_DISORDER, values)))

    def of_tasks(self, names: Mapping[str, Any]) -> Plan[Mapping[str, str]]:
        """The paths stored with one checkpoint's writes."""
        values = {
            "thread": names.get("thread_id"),
            "ns": names.get("checkpoint_ns", ""),
            "checkpoint": names.get("checkpoint_id"),
        }
        return dict((yield "ask", Statement(_PATHS, values)))


class RememberedPaths(Paths):
    """Paths that passed through this wrapper and its clones, of the checkpoints written last."""

    def __init__(self) -> None:
        """Start with none."""
        self._paths: Recent[tuple[str, str, str], dict[str, str]] = Recent(_REMEMBERED)

    def note(self, config: Any, task_id: str, task_path: str) -> None:
        """Remember the path of a task."""
        if task_path:
            key = _key(configurable(config))
            self._paths.change(key, lambda paths: {**(paths or {}), task_id: task_path})

    def disordered(self, names: Mapping[str, Any], channels: Sequence[str]) -> Plan[bool]:
        """Whether task ids and paths sort differently at one checkpoint, whatever the channel."""
        yield from ()
        del channels
        place = _key(names)[:2]
        return any(
            sorted(paths) != sorted(paths, key=lambda task: (paths[task], task))
            for key, paths in self._paths.items()
            if key[:2] == place
        )

    def of_tasks(self, names: Mapping[str, Any]) -> Plan[Mapping[str, str]]:
        """The paths remembered for one checkpoint."""
        yield from ()
        return self._paths.get(_key(names)) or {}


def _key(names: Mapping[str, Any]) -> tuple[str, str, str]:
    ns, cid = names.get("checkpoint_ns", ""), names.get("checkpoint_id")
    return str(names.get("thread_id")), str(ns), str(cid)


def paths_for(family: str, saver: Any, remembered: RememberedPaths) -> Paths | None:
    """Where to find the paths of a saver; None if it sorts by them itself."""
    if sorts_by_path(family):
        return None
    if family == "memory":
        return MemoryPaths(saver)
    if family == "postgres":
        return PostgresPaths()
    return remembered
