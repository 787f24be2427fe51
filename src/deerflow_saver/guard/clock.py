"""The ids' clock: an id loaded from elsewhere is in the past of every id made here later.

LangGraph's ids are uuid6: they grow within a process and follow the clock between hosts.
Without this, a host whose clock is behind would continue a thread with ids older than the
head; its checkpoints would never become the head.
"""

from __future__ import annotations

import time
from typing import Any

from langgraph.checkpoint.base import id as _ids

__all__ = ["observe"]

ids: Any = _ids  # its clock is private, see _adjustable

_EPOCH = 0x01B21DD213814000  # 1970 in units of 100 ns since 1582-10-15
_DAY = 24 * 3600 * 10_000_000
_LENGTH = 36


def _now() -> int:
    return time.time_ns() // 100 + _EPOCH


def _adjustable() -> bool:
    """Whether the installed generator continues from the timestamp that is set here."""
    before = getattr(ids, "_last_v6_timestamp", False)
    if before is False:
        return False
    ahead = _now() + 1_000_000
    try:
        ids._last_v6_timestamp = ahead  # noqa: SLF001 - tested right here
        return bool(ids.uuid6().time > ahead)
    except Exception:  # noqa: BLE001 - another generator: then nothing is adjusted
        return False
    finally:
        ids._last_v6_timestamp = before  # noqa: SLF001


_ADJUSTABLE = _adjustable()


def observe(checkpoint_id: object) -> None:
    """Let ids made from now on be newer than `checkpoint_id`, if it is at most a day ahead."""
    if not _ADJUSTABLE or type(checkpoint_id) is not str or len(checkpoint_id) != _LENGTH:
        return
    if checkpoint_id[14] != "6":
        return
    try:
        high, mid = int(checkpoint_id[:8], 16), int(checkpoint_id[9:13], 16)
        seen = high << 28 | mid << 12 | int(checkpoint_id[15:18], 16)
    except ValueError:
        return
    last = ids._last_v6_timestamp or 0  # noqa: SLF001 - see _adjustable
    if last < seen and _now() <= seen <= _now() + _DAY:
        ids._last_v6_timestamp = seen  # noqa: SLF001 - as above
