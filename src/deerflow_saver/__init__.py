"""The checkpointer layer around LangGraph savers: cached delta histories, guarded threads."""

from __future__ import annotations

from deerflow_saver.cache.base import HistoryCache
from deerflow_saver.cache.memory import MemoryHistoryCache
from deerflow_saver.cache.opening import open_cache
from deerflow_saver.errors import (
    DeerflowSaverError,
    DeerflowSaverWarning,
    InvalidConfigError,
    LostWritesError,
    NonHeadWriteError,
    PrunedHistoryError,
    RefusedWriteError,
    UnsupportedSaverError,
    WriteSlotTakenError,
)
from deerflow_saver.events import CacheInfo, GuardEvent, HistoryEvent
from deerflow_saver.guard.policy import allow_non_head_writes
from deerflow_saver.saver import CachedHistorySaver
from deerflow_saver.wrapping import cache_of, wrap

__version__ = "0.1.0"

__all__ = [
    "CacheInfo",
    "CachedHistorySaver",
    "DeerflowSaverError",
    "DeerflowSaverWarning",
    "GuardEvent",
    "HistoryCache",
    "HistoryEvent",
    "InvalidConfigError",
    "LostWritesError",
    "MemoryHistoryCache",
    "NonHeadWriteError",
    "PrunedHistoryError",
    "RefusedWriteError",
    "UnsupportedSaverError",
    "WriteSlotTakenError",
    "__version__",
    "allow_non_head_writes",
    "cache_of",
    "open_cache",
    "wrap",
]
