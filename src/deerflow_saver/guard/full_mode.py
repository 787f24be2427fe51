"""Calls made in full mode: none of them reads or feeds a thread that is stored as deltas.

A thread may turn delta between a caller's look and its write, so the head is judged in the
step that stores. Its metadata was looked at anyway. What else tells is read once per head,
unless this process put the head, or read it in full mode.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.gate import judge_row, mismatch_at
from deerflow_saver.guard.calls import Target
from deerflow_saver.guard.fence import Seen, Session
from deerflow_saver.guard.state import Namespace

__all__ = ["Unvetted", "require_full", "vetted_read", "vetting"]


class Unvetted(Exception):  # noqa: N818 - a signal between plans, never raised to a caller
    """A forecast did not hold, and the head that is there instead has to be read."""


def require_full(target: Target, namespace: Namespace, seen: Seen) -> None:
    """Refuse a full-mode call whose head is delta; a head that is not known has to be read.

    Raises:
        CheckpointModeMismatchError: the head is delta.
        Unvetted: its metadata does not tell.

    """
    head = seen.head
    if not target.full or head is None or head.checkpoint_id == namespace.full_head:
        return
    if head.signal.delta:
        raise mismatch_at(target.head_config())
    raise Unvetted


def vetting(target: Target, namespace: Namespace, session: Session, seen: Seen) -> Plan[None]:
    """After a look: read the head inside the session, if it is not known.

    A namespace without a head goes by the root graph's.
    """
    head = seen.head
    if not target.full or (head is None and not target.checkpoint_ns):
        return
    try:
        require_full(target, namespace, seen)
    except Unvetted:
        yield "vet", (session, target.head_config())
        namespace.full_head = head.checkpoint_id if head is not None else None
    if head is None:
        yield "vet", (session, target.head_config(""))


def vetted_read(target: Target, namespace: Namespace, row: Any) -> Plan[None]:
    """Refuse a read made in full mode if the row is of a delta thread, before a node runs."""
    if row is None or row.checkpoint["id"] == namespace.full_head:
        return
    yield from judge_row(row)
    if target.checkpoint_id is None:
        namespace.full_head = row.checkpoint["id"]
