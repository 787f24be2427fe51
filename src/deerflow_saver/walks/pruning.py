"""`prune` that would delete the writes of delta channels is refused before it begins.

LangGraph's `keep_latest` refuses the threads in which it finds update counters or snapshots.
Releases from 1.2.5 to 1.2.7 left neither on threads that only `update_state` wrote to.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from deerflow_saver._arguments import argument
from deerflow_saver._plan import Plan
from deerflow_saver.errors import PrunedHistoryError
from deerflow_saver.walks.asking import Statement, family_of

__all__ = ["keeping_histories"]

T = TypeVar("T")

# A written channel that no checkpoint of the namespace stores is a delta channel: every other
# one is stored at least where it was written. One known as delta must be stored at the head.
# LangGraph's own channels begin with two underscores or hold a colon, and it refuses threads
# with counters by itself.
_UNSTORED = """
SELECT DISTINCT w.thread_id, w.channel FROM checkpoint_writes w
WHERE w.thread_id = ANY(:threads)
AND strpos(w.channel, '__') <> 1 AND strpos(w.channel, ':') = 0
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = w.thread_id AND c.metadata ? 'counters_since_delta_snapshot'
)
AND EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns
    AND (c.checkpoint -> 'channel_versions') ? w.channel
)
AND NOT EXISTS (
    SELECT 1 FROM checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns
    AND (w.channel <> ALL(:known) OR c.checkpoint_id = (
        SELECT max(h.checkpoint_id) FROM checkpoints h
        WHERE h.thread_id = w.thread_id AND h.checkpoint_ns = w.checkpoint_ns
    ))
    AND ((c.checkpoint -> 'channel_values') ? w.channel OR EXISTS (
        SELECT 1 FROM checkpoint_blobs b
        WHERE b.thread_id = w.thread_id AND b.checkpoint_ns = w.checkpoint_ns
        AND b.channel = w.channel AND b.type <> 'empty'
        AND b.version = c.checkpoint -> 'channel_versions' ->> w.channel
    ))
)
ORDER BY 1, 2
"""


def keeping_histories(
    saver: Any, known: Collection[str], args: Any, kwargs: Any, plan: Plan[T]
) -> Plan[T]:
    """Run the plan of a `prune` unless it would delete what delta channels are made of.

    Args:
        saver: the wrapped saver.
        known: names known to be delta channels.
        args: of the call.
        kwargs: of the call.
        plan: stores nothing before it is started.

    Raises:
        PrunedHistoryError: it would.

    """
    threads = [str(thread) for thread in argument("thread_ids", 0, args, kwargs) or ()]
    latest = kwargs.get("strategy", "keep_latest") == "keep_latest"
    if threads and latest and family_of(saver, "prune") == "postgres":
        values = {"threads": threads, "known": list(known)}
        lost: dict[str, tuple[str, ...]] = {}
        for thread, channel in (yield "ask", Statement(_UNSTORED, values)):
            lost[thread] = (*lost.get(thread, ()), channel)
        if lost:
            raise PrunedHistoryError(lost)
    return (yield from plan)
