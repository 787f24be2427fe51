"""A table of what was used last, bounded, for any number of threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the newest `limit` entries."""

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, if it is still kept."""
        return self._entries.get(key)

    def keep(self, key: K, value: V) -> None:
        """Set a value; the entry set longest ago goes if there are too many."""
        self.change(key, lambda _: value)

    def change(self, key: K, new: Callable[[V | None], V]) -> None:
        """Set what `new` makes of the value at hand, in one step."""
        with self._lock:
            self._entries[key] = new(self._entries.get(key))
            self._entries.move_to_end(key)
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries, as they were at one moment."""
        with self._lock:
            return iter(list(self._entries.items()))

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._entries)
