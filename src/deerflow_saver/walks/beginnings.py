"""Whether a walk went past the checkpoint at which its channel's history begins.

`_beginnings` says where that is. Asked where a walk found no stored value but writes:
is there a checkpoint on the line that never had the channel written, below one that owns writes
of it? The oldest checkpoint that may be one decides, for channels keep their versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deerflow_saver._beginnings import unwritten
from deerflow_saver._plan import Plan
from deerflow_saver.walks.asking import Statement

__all__ = ["overran", "overran_in_memory"]

_STEP = {
    "sqlite": """
        SELECT c.checkpoint_id, c.parent_checkpoint_id, line.depth + 1
        FROM line CROSS JOIN checkpoints c ON c.checkpoint_id = line.parent
        WHERE c.thread_id = :thread AND c.checkpoint_ns = :ns AND line.depth < {most}""",
    "postgres": """
        SELECT up.checkpoint_id, up.parent_checkpoint_id, line.depth + 1
        FROM line CROSS JOIN LATERAL (
            SELECT c.checkpoint_id, c.parent_checkpoint_id FROM checkpoints c
            WHERE c.thread_id = :thread AND c.checkpoint_ns = :ns
            AND c.checkpoint_id = line.parent LIMIT 1
        ) AS up WHERE line.depth < {most}""",
}
_MOST = "(SELECT count(*) FROM checkpoints WHERE thread_id = :thread AND checkpoint_ns = :ns)"
_LINE = """
WITH RECURSIVE line(id, parent, depth) AS (
    SELECT checkpoint_id, parent_checkpoint_id, 0 FROM checkpoints
    WHERE thread_id = :thread AND checkpoint_ns = :ns AND checkpoint_id = {target}
    UNION ALL {step}
)
SELECT {columns} FROM line JOIN checkpoints c ON c.checkpoint_id = line.id
WHERE c.thread_id = :thread AND c.checkpoint_ns = :ns AND {uncounted}
AND line.depth < (
    SELECT max(above.depth) FROM line AS above JOIN {writes} w ON w.checkpoint_id = above.id
    WHERE w.thread_id = :thread AND w.checkpoint_ns = :ns AND w.channel = :channel
)
ORDER BY line.depth DESC LIMIT 1
"""
_HEAD = """(
    SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = :thread AND checkpoint_ns = :ns
)"""
_UNCOUNTED = {
    "sqlite": """NOT EXISTS (
        SELECT 1 FROM json_each(CAST(c.metadata AS TEXT), '$.counters_since_delta_snapshot')
        WHERE key = :channel
    )""",
    "postgres": """NOT coalesce(
        (c.metadata -> 'counters_since_delta_snapshot') ? :channel, false
    )""",
}
_COLUMNS = {
    "sqlite": "c.type, c.checkpoint",
    "postgres": "c.checkpoint -> 'channel_versions', c.checkpoint -> 'channel_values'",
}
_WRITES = {"sqlite": "writes", "postgres": "checkpoint_writes"}


def overran(family: str, saver: Any, names: Any, channels: Sequence[str]) -> Plan[bool]:
    """Whether the walk of one of `channels` took in writes that no step ever applied.

    Args:
        family: of `saver`, one of LangGraph's own.
        saver: the saver that was asked.
        names: the `configurable` part of the config.
        channels: those whose history came without a seed, and with writes.

    """
    for channel in channels:
        if family == "memory":
            if overran_in_memory(saver, names, channel):
                return True
            continue
        try:
            rows = yield "ask", _statement(family, names, channel)
            if any(_unwritten(family, saver, row, channel) for row in rows):
                return True
        except Exception:  # noqa: BLE001 - it cannot be told, and the walk over rows is right
            return True
    return False


def _statement(family: str, names: Any, channel: str) -> Statement:
    target = names.get("checkpoint_id") or None
    text = _LINE.format(
        target=":target" if target else _HEAD,
        step=_STEP[family].format(most=_MOST),
        columns=_COLUMNS[family],
        uncounted=_UNCOUNTED[family],
        writes=_WRITES[family],
    )
    thread = names.get("thread_id")
    values = {
        "thread": thread if family == "postgres" else str(thread),
        "ns": names.get("checkpoint_ns", ""),
        "target": target,
        "channel": channel,
    }
    return Statement(text, values)


def _unwritten(family: str, saver: Any, row: Sequence[Any], channel: str) -> bool:
    versions, stored = row
    if family == "sqlite":
        checkpoint = saver.serde.loads_typed((row[0], row[1]))
        versions, stored = (checkpoint.get(k) for k in ("channel_versions", "channel_values"))
    return bool(unwritten([channel], versions, stored, None))


def overran_in_memory(saver: Any, names: Mapping[str, Any], channel: str) -> bool:
    """The same of an `InMemorySaver`, whose tables are at hand."""
    thread, ns = names.get("thread_id"), names.get("checkpoint_ns", "")
    rows = dict(saver.storage.get(thread, {}).get(ns, {}))
    line: dict[str, None] = {}
    current = names.get("checkpoint_id") or max(rows, default=None)
    while current is not None and current in rows and current not in line:
        line[current] = None
        current = rows[current][2]
    above = False
    for cid in reversed(line):
        if above:
            found = _of_memory(saver, rows[cid], channel)
            if found is not None:
                return found
        writes = saver.writes.get((thread, ns, cid)) or {}
        above = above or any(row[1] == channel for row in list(writes.values()))
    return False


def _of_memory(saver: Any, row: Any, channel: str) -> bool | None:
    """Whether the channel had never been written; None for a checkpoint that counts it."""
    checkpoint, metadata = (saver.serde.loads_typed(part) for part in row[:2])
    if channel in checkpoint["channel_versions"]:
        return False
    return bool(unwritten([channel], checkpoint["channel_versions"], (), metadata)) or None
