"""The checkpointer layer around LangGraph savers: the same answers, cached delta histories."""

from __future__ import annotations

from deerflow_saver.cache.base import HistoryCache
from deerflow_saver.cache.memory import MemoryHistoryCache
from deerflow_saver.errors import (
    DeerflowSaverError,
    DeerflowSaverWarning,
    InvalidConfigError,
    UnsupportedSaverError,
)
from deerflow_saver.events import CacheInfo, HistoryEvent
from deerflow_saver.saver import CachedHistorySaver

__version__ = "0.1.0"

__all__ = [
    "CacheInfo",
    "CachedHistorySaver",
    "DeerflowSaverError",
    "DeerflowSaverWarning",
    "HistoryCache",
    "HistoryEvent",
    "InvalidConfigError",
    "MemoryHistoryCache",
    "UnsupportedSaverError",
    "__version__",
]
