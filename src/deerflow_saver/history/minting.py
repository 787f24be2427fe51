"""When a checkpoint id was made, by its own testimony.

LangGraph's ids are uuid6: they begin with a timestamp that never runs backwards within a
process. So an id that is later than a moment's own id was made after that moment, by this
process or by one whose clock runs ahead.
"""

from __future__ import annotations

from langgraph.checkpoint.base.id import uuid6

__all__ = ["minted", "now"]

_DIGITS = 32


def minted(checkpoint_id: str) -> int | None:
    """The id's timestamp in units of 100 ns; None if it is no uuid6."""
    digits = checkpoint_id.replace("-", "")
    if len(digits) != _DIGITS or digits[12] != "6":
        return None
    try:
        return int(digits[:12], 16) << 12 | int(digits[13:16], 16)
    except ValueError:
        return None


def now() -> int:
    """A timestamp that every id made by this process from now on exceeds."""
    return minted(str(uuid6())) or 0
