"""Where environments are kept, and how one appears there: whole, or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "cache_folder", "publish"]

CACHE_VARIABLE = "DEERFLOW_SAVER_CACHE_DIR"
_UNFINISHED = ".unfinished-"
_ABANDONED_AFTER = 24 * 3600.0


def cache_folder(chosen: Path | None = None) -> Path:
    """`chosen`, else `$DEERFLOW_SAVER_CACHE_DIR`, else a folder in the user's cache."""
    if chosen is not None:
        return chosen.absolute()
    own = os.environ.get(CACHE_VARIABLE)
    return Path(own).absolute() if own else _user_cache() / "deerflow-saver"


def publish(final: Path, make: Callable[[Path], None]) -> None:
    """Let `make` fill a folder and let it appear at `final` when it is done.

    A process that dies meanwhile leaves nothing at `final`. Of two processes that make the
    same folder the first one's stays, and the other's is removed: both go on with a whole one.
    """
    if final.exists():
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(final.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{final.name}-", dir=final.parent))
    try:
        make(unfinished)
        try:
            unfinished.rename(final)
        except OSError:
            if not final.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove what a killed process left a day ago or earlier."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        try:
            age = time.time() - left.stat().st_mtime
        except FileNotFoundError:
            continue
        if age > _ABANDONED_AFTER:
            shutil.rmtree(left, ignore_errors=True)


def _user_cache() -> Path:
    """The platform's place for caches.

    Root's is outside of root's home: started by root, an embedded Postgres changes to another
    user, and opens every folder above its programs to that user.
    """
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    own = os.environ.get("XDG_CACHE_HOME")
    if not own and os.geteuid() == 0:
        return Path("/var/cache")
    return Path(own or Path.home() / ".cache")
