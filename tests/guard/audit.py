"""What is wrong with stored threads, told from the rows alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from guard.storage import Dump

__all__ = ["Findings", "changed", "findings", "histories", "written"]

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Findings:
    """Checkpoints that break a thread's line; empty for a line."""

    siblings: tuple[Key, ...] = ()
    """Parents with several children."""
    roots: tuple[Key, ...] = ()
    """Checkpoints without a parent, beside another one."""
    orphans: tuple[Key, ...] = ()
    """Checkpoints whose parent is not stored."""

    def __bool__(self) -> bool:
        return bool(self.siblings or self.roots or self.orphans)


def findings(dump: Dump) -> Findings:
    """The breaks in all threads and namespaces of a database."""
    rows = [row[:4] for row in dump["checkpoints"]]
    stored = {row[:3] for row in rows}
    children = Counter((*row[:2], row[3]) for row in rows if row[3])
    roots = defaultdict(list)
    for row in rows:
        if not row[3]:
            roots[row[:2]].append(row[:3])
    return Findings(
        siblings=tuple(sorted(key for key, number in children.items() if number > 1)),
        roots=tuple(key for keys in roots.values() for key in sorted(keys)[1:]),
        orphans=tuple(sorted(set(children) - stored)),
    )


def written(before: Dump, after: Dump) -> list[tuple[Any, ...]]:
    """Rows that came, went or changed: the table, and the row's first six columns."""
    return sorted(
        ((table, *row[:6]) for table, rows in after.items() for row in rows ^ before[table]),
        key=str,
    )


def histories(saver: BaseCheckpointSaver[Any], channels: Collection[str]) -> dict[Any, str]:
    """The delta history of every stored checkpoint, for channels that a reader rebuilds there."""
    found = {}
    for row in list(saver.list(None)):  # some savers hold their lock while they list
        place = row.config["configurable"]
        key = (place["thread_id"], place.get("checkpoint_ns", ""), place["checkpoint_id"])
        values = row.checkpoint["channel_values"]
        rebuilt = [name for name in channels if name not in values]
        if rebuilt:
            history = saver.get_delta_channel_history(config=row.config, channels=rebuilt)
            found[key] = repr({name: history[name] for name in sorted(history)})
    return found


def changed(before: Mapping[Any, str], after: Mapping[Any, str]) -> list[Any]:
    """Checkpoints whose history is another one now."""
    return [key for key, history in before.items() if after.get(key, history) != history]
