"""What goes wrong in a cell, told without telling where the user lives."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ChildError", "safe_error"]

_LONGEST = 2000


class ChildError(Exception):
    """A cell's process failed; the message goes into its row."""


def safe_error(error: BaseException | str, work_dir: str = "") -> str:
    """An error as a row may hold it: no home folder, no work folder, 2000 characters at most."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    if work_dir:
        text = text.replace(work_dir, "<work-dir>")
    return text.replace(str(Path.home()), "<home>")[:_LONGEST]
