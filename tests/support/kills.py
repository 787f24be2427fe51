"""Children that rewrite a thread of a database, each killed at a storage call."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Kill", "killed"]


class Kill(NamedTuple):
    """What a child does, and where it dies: before or after call `at` of the raw saver."""

    uri: str
    """Of Postgres, or the path of a SQLite file."""
    mode: str
    thread_id: str
    at: int | None
    """None: it comes to its end, in the process itself, which so knows what children inherit."""
    afterwards: bool = False
    selected: str | None = None
    """Go back to this checkpoint; None: restore the point."""
    point: Any = None


def killed(kills: list[Kill], folder: Path) -> list[bool]:
    """Let children do it; says of each whether it was killed, or came to its end before."""
    (folder / "kills").write_bytes(pickle.dumps(kills))
    done = subprocess.run(
        [sys.executable, "-m", "state.killed_worker", folder / "kills"],
        check=True,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=150,
    )
    return [bool(one) for one in json.loads(done.stdout)]
