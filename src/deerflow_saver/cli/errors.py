"""What ends a command before it has an answer."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["UsageError", "needs"]


class UsageError(Exception):
    """The command cannot run as asked; the message says what to change."""


def needs(module: str, extra: str) -> ModuleType:
    """Import what only an extra installs.

    Raises:
        UsageError: it is not installed.

    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f'{error.name} is not installed: pip install "deerflow-saver[{extra}]"'
        raise UsageError(message) from error
