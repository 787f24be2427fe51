"""A trial on the given saver itself: on a thread of its own, which is deleted at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from deerflow_saver._plan import Plan
from deerflow_saver.doctor.trial import CHANNEL, Observed, trial

__all__ = ["Scratch", "scratch", "thread_name"]


@dataclass(frozen=True, slots=True)
class Scratch:
    """What was done on the scratch thread.

    Attributes:
        thread_id: its name.
        observed: what the saver at the bottom of the stack does.
        asked: whether a read through the whole stack reached the cache; None without one, or
            if the stack would not read the thread.
        left: why the thread is still there; None if it is gone.
        error: what the trial ended with, if it failed.

    """

    thread_id: str
    observed: Observed | None = None
    asked: bool | None = None
    left: str | None = None
    error: str | None = None


def thread_name() -> str:
    """A name no other thread has."""
    return f"deerflow-saver-doctor-{uuid4().hex}"


def scratch(thread_id: str, reads: Any) -> Plan[Scratch]:
    """Try the saver, look whether the cache is asked, delete the thread in any case.

    Requests beyond those of `trial`: `outer_history` is the history through the whole stack.

    Args:
        thread_id: see `thread_name`.
        reads: gives the cache's count of answers, None without a cache.

    """
    observed, asked, error = None, None, None
    try:
        observed, head = yield from trial(thread_id)
        asked = yield from _asked(head, reads)
    except Exception as failed:  # noqa: BLE001 - the saver's own: reported, and the thread removed
        error = f"{type(failed).__name__}: {failed}"
    left = yield from _forget(thread_id)
    return Scratch(thread_id, observed, asked, left, error)


def _asked(head: Any, reads: Any) -> Plan[bool | None]:
    before = reads()
    if before is None:
        return None
    try:
        yield "outer_history", (head, [CHANNEL])
    except Exception:  # noqa: BLE001 - a scoping saver, which wants more in the config than there is
        return None
    return bool(reads() > before)


def _forget(thread_id: str) -> Plan[str | None]:
    try:
        yield "delete_thread", (thread_id,)
        row = yield "get_tuple", ({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}},)
    except Exception as failed:  # noqa: BLE001 - whatever it is, the user has to know
        return f"{type(failed).__name__}: {failed}"
    return "delete_thread returned, and it is still there" if row is not None else None
