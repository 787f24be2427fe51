"""A table of what was used last, bounded, for any number of threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the newest `limit` entries.

    Values are made outside its lock: making one may run the garbage collector, which may
    close a run that waits for saves, which want the lock.
    """

    __slots__ = ("_entries", "_limit", "_lock")

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
        with self._lock:
            self._set(key, value)

    def obtain(self, key: K, make: Callable[[], V]) -> V:
        """The value, made if there is none, and marked as just used."""
        known = self.get(key)
        made = make() if known is None else known
        with self._lock:
            known = self._entries.get(key)
            value = made if known is None else known
            self._set(key, value)
        return value

    def change(self, key: K, new: Callable[[V | None], V]) -> None:
        """Set what `new` makes of the value at hand, again if it changed meanwhile."""
        while True:
            known = self.get(key)
            value = new(known)
            with self._lock:
                if self._entries.get(key) is known:
                    self._set(key, value)
                    return

    def _set(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def discard(self, key: K) -> None:
        """Drop `key`, if it is there."""
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()

    def items(self) -> list[tuple[K, V]]:
        """All entries, as they were at one moment."""
        with self._lock:
            return list(self._entries.items())

    def __contains__(self, key: object) -> bool:
        """Whether `key` is still kept."""
        return key in self._entries

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._entries)
