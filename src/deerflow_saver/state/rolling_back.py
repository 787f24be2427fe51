"""The plan of a rollback: read the head and the checkpoint from before the run, then one `put`.

Everything else that is stored goes first, under ids that nobody reads until that put: the
copy's pending writes, and the subgraphs that had stopped in the middle.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.gate import judge_row
from deerflow_saver.guard.fence import Call
from deerflow_saver.guard.policy import MARKER, signal_of
from deerflow_saver.state.if_head import IfHead
from deerflow_saver.state.linear_copy import delta_names
from deerflow_saver.state.namespaces import namespaces_since
from deerflow_saver.state.point_copy import Copied, Rollback, content_of, with_tasks
from deerflow_saver.state.reattaching import same_writes
from deerflow_saver.state.rollback_point import RollbackPoint

__all__ = ["ROLLED_BACK_TO", "rolling_back"]

ROLLED_BACK_TO = "deerflow_rolled_back_to"
"""In the new checkpoint's metadata: the checkpoint whose content it has."""


def rolling_back(asked: Rollback) -> Plan[bool]:
    """Put a copy of the checkpoint from before the run on top of what the run left.

    In a thread with delta channels it goes on top of the head, with a snapshot of each; else
    it forks the checkpoint it copies. If the thread is as it was, nothing is stored.
    """
    head = yield "get_tuple", asked.at(None)
    target = asked.point.checkpoint_id
    row = head
    if head is None or head.checkpoint["id"] != target:
        row = yield "get_tuple", asked.at(target)
    if head is None or row is None:
        asked.refuse_missing(target)
    if asked.mode == "full":
        for shown in (head, row):
            yield from judge_row(shown, asked.graph.channels)
    if head is row and (yield from _untouched(asked, asked.point, row)):
        return True
    _refuse_anothers_head(asked, head)
    yield from _refuse_moved_subgraphs(asked)
    copied = yield from _copy(asked, row, head)
    if copied is None:
        return True
    yield "check", None
    yield from _put_before(asked, copied)
    _refuse_config(asked, (yield from _put_root(asked, row, head, copied)))
    return True


def _untouched(asked: Rollback, point: RollbackPoint, row: Any) -> Plan[bool]:
    """Whether a namespace's newest row is the captured one, with what was pending there."""
    if row is None or row.checkpoint["id"] != point.checkpoint_id:
        return False
    if not same_writes(asked.saver.serde, row.pending_writes or (), point.pending_writes):
        return False
    for stopped in point.subgraphs:
        inside = yield "get_tuple", asked.at(None, stopped.checkpoint_ns)
        if not (yield from _untouched(asked, stopped, inside)):
            return False
    return True


def _refuse_anothers_head(asked: Rollback, head: Any) -> None:
    """A turn that another run has added since would be hidden."""
    owner = head.metadata.get("run_id")
    if asked.run_id is None or owner is None or str(owner) == asked.run_id:
        return
    if head.checkpoint["id"] != asked.point.checkpoint_id and not _restored(asked, head):
        asked.refuse(
            f"checkpoint {head.checkpoint['id']} is the head now, and run {owner} has made it",
            "Rolling back would hide what that run did: roll back that run, or leave both.",
        )


def _restored(asked: Rollback, head: Any) -> bool:
    return bool(head.metadata.get(ROLLED_BACK_TO) == asked.point.checkpoint_id)


def _refuse_moved_subgraphs(asked: Rollback) -> Plan[None]:
    """A subgraph with a memory of its own would stay where it is."""
    moved = yield from namespaces_since(asked.at(None), str(asked.point.checkpoint_id))
    stateful = sorted(name for name in moved if name and ":" not in name)
    if stateful:
        asked.refuse(
            f"its subgraph {', '.join(stateful)} keeps its state by itself, and has gone on since",
            "Compile the subgraph without a checkpointer of its own (checkpointer=True).",
        )


def _linear(asked: Rollback, row: Any, head: Any) -> bool:
    """Whether the copy goes on top of the head."""
    if not asked.forks or delta_names(asked.graph.channels):
        return True
    return any(
        signal_of(shown.metadata, shown.checkpoint["channel_values"]).delta for shown in (row, head)
    )


def _copy(asked: Rollback, row: Any, head: Any) -> Plan[Copied | None]:
    """The copy to be put; None if the head is such a copy already."""
    point, linear = asked.point, _linear(asked, row, head)
    content = yield from content_of(asked, asked.graph, point, row, head)
    metadata = {
        "source": "update",
        "step": (head if linear else row).metadata.get("step", -1) + 1,
        "parents": {},
        ROLLED_BACK_TO: point.checkpoint_id,
    }
    if not linear and MARKER in row.metadata:
        metadata[MARKER] = row.metadata[MARKER]
    if _restored(asked, head) and not point.subgraphs:
        stored = content._replace(checkpoint={**content.checkpoint, "id": head.checkpoint["id"]})
        done = yield from with_tasks(asked, asked.graph, point, row, (stored, head.metadata), {})
        left = [(owner, *write) for owner, writes, _ in done.pending for write in writes]
        if same_writes(asked.saver.serde, head.pending_writes or (), left):
            return None
    return (yield from with_tasks(asked, asked.graph, point, row, (content, metadata), {}))


def _put_before(asked: Rollback, copied: Copied) -> Plan[None]:
    """Store what belongs to a copy; nobody reads it before the copy itself is there."""
    for inside in copied.inside:
        yield from _put_before(asked, inside)
        place = asked.at(None, inside.checkpoint_ns)
        yield "put", (place, inside.checkpoint, inside.metadata, inside.new_versions)
    at = asked.at(copied.checkpoint["id"], copied.checkpoint_ns)
    for task_id, writes, task_path in copied.pending:
        yield "put_writes", (at, writes, task_id, task_path)


def _put_root(asked: Rollback, row: Any, head: Any, copied: Copied) -> Plan[Any]:
    """Store the copy if the head is still the one that was read."""
    head_id = head.checkpoint["id"]
    made = copied.checkpoint, copied.metadata, copied.new_versions
    if _linear(asked, row, head):
        return (yield "put", (asked.at(head_id), *made))
    call: Call = ("put", (asked.at(row.checkpoint["id"]), *made), {})
    return (yield "if_head", IfHead(asked.at(None), head_id, call, copied.checkpoint["id"]))


def _refuse_config(asked: Rollback, config: Any) -> None:
    """Refuse a saver's answer that does not say what it has stored."""
    if not isinstance(config, dict):
        asked.refuse_answer("returned invalid config: expected dict")
    if not isinstance(config.get("configurable"), dict):
        asked.refuse_answer("returned invalid config payload")
    if not configurable(config).get("checkpoint_id"):
        asked.refuse_answer("did not return checkpoint_id")
