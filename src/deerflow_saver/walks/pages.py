"""Listings read page by page, so that the saver's lock is free while the consumer works.

LangGraph's SQL savers yield the rows of `list` and `alist` inside their lock: a write in the
loop's body waits for ever. A page is read whole, the next one continues below the last id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Pager", "pageable"]

_FIRST = 8
_LARGEST = 64
_OPTIONS = frozenset({"filter", "before", "limit"})


def pageable(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether these are arguments of `BaseCheckpointSaver.list` that a page can be asked with."""
    limit = kwargs.get("limit")
    proper = limit is None or (type(limit) is int and limit > 0)
    return proper and len(args) <= 1 and kwargs.keys() - {"config"} <= _OPTIONS


class Pager:
    """The pages of one listing.

    Rows come newest id first. Rows of other threads or namespaces may share an id, and
    `before` excludes it, so the last id of a full page is left to the next one.
    """

    def __init__(self, kwargs: Mapping[str, Any]) -> None:
        """`kwargs` are those of the listing."""
        self._kwargs = dict(kwargs)
        self._left: int | None = kwargs.get("limit")
        self._size = _FIRST if self._left is None else min(self._left, _LARGEST)
        self.done = False

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments of the next page."""
        return {**self._kwargs, "limit": self._asked}

    @property
    def _asked(self) -> int:
        return self._size if self._left is None else min(self._size, self._left)

    def take(self, rows: list[Any]) -> list[Any]:
        """The rows of the page just read that may be handed out."""
        if len(rows) < self._asked or self._asked == self._left:
            self.done = True
            return rows
        last = _id(rows[-1])
        passed = [row for row in rows if _id(row) != last]
        if not passed:  # one id in every row: the page was too small
            self._size *= 2
            return []
        self._size = max(self._size, min(self._size * 4, _LARGEST))
        self._kwargs["before"] = {"configurable": {"checkpoint_id": _id(passed[-1])}}
        if self._left is not None:
            self._left -= len(passed)
        return passed


def _id(row: Any) -> str:
    return str(row.config["configurable"]["checkpoint_id"])
