"""Where a run keeps its temporary files."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["keep_files_in_memory"]

_MEMORY = Path("/dev/shm")
_ROOM = 4 * 1024**3


def keep_files_in_memory(folder: Path = _MEMORY, room: int = _ROOM) -> None:
    """Have temporary folders made in memory, by this process and all that it starts.

    SQLite waits for the disk at every commit, which takes longer than everything else a test
    does; what a killed process has written is there afterwards either way. An own `TMPDIR` is
    left alone, and so is a file system that is small or lets nothing be executed.

    Args:
        folder: where the memory's file system is, if there is one.
        room: bytes that must be free in it.

    """
    if "TMPDIR" in os.environ or not os.access(folder, os.W_OK | os.X_OK):
        return
    barred = os.statvfs(folder).f_flag & os.ST_NOEXEC
    if not barred and shutil.disk_usage(folder).free >= room:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
