"""The savers whose cache a metrics adapter tells about."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Protocol

from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.events import CacheInfo

__all__ = ["HasCacheInfo", "Watched"]


class HasCacheInfo(Protocol):
    """A `CachedHistorySaver`, as far as metrics are concerned."""

    def cache_info(self) -> CacheInfo:
        """Counters and size."""
        ...


class Watched:
    """Savers by name; none is kept alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._savers: dict[str, weakref.ref[HasCacheInfo]] = {}

    def add(self, saver: HasCacheInfo, name: str) -> None:
        """Tell about `saver` from now on, and no longer about another one of that name.

        Raises:
            InvalidConfigError: it has no `cache_info()`.

        """
        if not callable(getattr(saver, "cache_info", None)):
            msg = (
                f"watch takes a CachedHistorySaver, got {type(saver).__name__}; "
                "where another saver is wrapped round it, give the inner one"
            )
            raise InvalidConfigError(msg)
        with self._lock:
            self._savers[name] = weakref.ref(saver)

    def infos(self) -> Iterator[tuple[str, CacheInfo]]:
        """What each saver that is still in use tells now."""
        with self._lock:
            found = list(self._savers.items())
        for name, reference in found:
            saver = reference()
            if saver is not None:
                yield name, saver.cache_info()
