"""Errors and warnings raised by deerflow-saver. Every error has one base: `DeerflowSaverError`."""

from __future__ import annotations

__all__ = [
    "DeerflowSaverError",
    "DeerflowSaverWarning",
    "InvalidConfigError",
    "UnsupportedSaverError",
]


class DeerflowSaverError(Exception):
    """Base of every error this package raises on purpose."""


class UnsupportedSaverError(DeerflowSaverError, TypeError):
    """The object handed to `CachedHistorySaver` cannot be wrapped without losing data."""


class InvalidConfigError(DeerflowSaverError, KeyError, ValueError):
    """A config or argument of a saver call is missing something or has the wrong type.

    A `KeyError` too, because that is what LangGraph's savers raise for a config
    without `thread_id`.
    """

    def __str__(self) -> str:
        """The plain message: `KeyError` alone would print it in quotes."""
        return str(self.args[0]) if self.args else ""


class DeerflowSaverWarning(UserWarning):
    """Base category of this package's warnings."""
