"""The statement that tells whether a walk may be wrong, asked where it found no snapshot.

A walk that ended at a stored value cannot have lost anything: it got there from child to
parent. One that found none ended at the thread's first checkpoint, or too early. One that
found a plain value may have passed a None on the way, which is stored in times of ordinary
channels as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deerflow_saver.walks.asking import Statement
from deerflow_saver.walks.habits import PAGE, Habits

__all__ = ["doubt_of"]

# SQLite plans a recursive join well only with CROSS JOIN, Postgres only with a LATERAL LIMIT 1
_STEP = {
    "sqlite": """
        SELECT c.checkpoint_id, c.parent_checkpoint_id FROM line CROSS JOIN checkpoints c
        ON c.checkpoint_id = line.parent
        WHERE c.thread_id = :thread AND c.checkpoint_ns = :ns""",
    "postgres": """
        SELECT up.checkpoint_id, up.parent_checkpoint_id FROM line CROSS JOIN LATERAL (
            SELECT c.checkpoint_id, c.parent_checkpoint_id FROM checkpoints c
            WHERE c.thread_id = :thread AND c.checkpoint_ns = :ns
            AND c.checkpoint_id = line.parent LIMIT 1
        ) AS up""",
}
_LATE_PARENT = """EXISTS (
    WITH RECURSIVE line(id, parent) AS (
        SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
        WHERE thread_id = :thread AND checkpoint_ns = :ns AND checkpoint_id = :target
        UNION {step}
    ) SELECT 1 FROM line WHERE parent > id
)"""
_HEAD = """(
    SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = :thread AND checkpoint_ns = :ns
)"""
_SECOND_PAGE = """EXISTS (
    SELECT 1 FROM checkpoints
    WHERE thread_id = :thread AND checkpoint_ns = :ns AND checkpoint_id > :target
    ORDER BY checkpoint_id DESC LIMIT 1 OFFSET :page
)"""
_PLAIN_SEED = """EXISTS (
    SELECT 1 FROM checkpoint_blobs WHERE thread_id = :thread AND checkpoint_ns = :ns
    AND channel = ANY(:channels) AND type <> 'empty'
) OR EXISTS (
    SELECT 1 FROM checkpoints WHERE thread_id = :thread AND checkpoint_ns = :ns
    AND (checkpoint -> 'channel_values') ?| :channels
)"""
_NONE_SEED = """EXISTS (
    SELECT 1 FROM checkpoints, unnest(CAST(:nullable AS text[])) AS name
    WHERE thread_id = :thread AND checkpoint_ns = :ns
    AND jsonb_typeof(checkpoint -> 'channel_values' -> name) = 'null'
)"""


def doubt_of(
    family: str,
    habits: Habits,
    names: Any,
    channels: Sequence[str],
    nullable: Sequence[str] = (),
    *,
    head: bool,
) -> Statement | None:
    """A statement that has a row if the walk may have been wrong; None if it was right.

    Args:
        family: `"sqlite"` or `"postgres"`.
        habits: what the saver's class does.
        names: the `configurable` part of the config.
        channels: those whose history came without a seed.
        nullable: those whose history may have passed a stored None.
        head: whether the target had the thread's greatest id when it was read. In Postgres
            rows come by pages from the target's id down, so a head loses nothing.

    """
    postgres = family == "postgres"
    target = names.get("checkpoint_id") or None
    head = head or target is None
    terms = []
    if channels and habits.late_parents and not (postgres and head):
        text = _LATE_PARENT.format(step=_STEP[family])
        terms.append(text if target else text.replace(":target", _HEAD))
    if channels and habits.second_page and not head:
        terms.append(_SECOND_PAGE)
    if channels and habits.plain_seed:
        terms.append(_PLAIN_SEED)
    if nullable and habits.none_seed:
        terms.append(_NONE_SEED)
    if not terms:
        return None
    thread = names.get("thread_id")
    values = {
        "thread": thread if postgres else str(thread),
        "ns": names.get("checkpoint_ns", ""),
        "target": target,
        "channels": list(channels),
        "nullable": list(nullable),
        "page": PAGE - 1,
    }
    return Statement(f"SELECT 1 WHERE {' OR '.join(terms)}", values)
