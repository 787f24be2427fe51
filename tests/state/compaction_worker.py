"""Children that compact a thread of a database and are killed at a storage call.

Each argument is `mode-when-at=uri`: of a Postgres database, or the path of a SQLite file.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import compact_thread
from state.chat import Chat, count
from support.faulty import Faulty


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def compact(kill: str) -> None:
    label, _, uri = kill.partition("=")
    mode, when, at = label.split("-")
    kind: Any = PostgresSaver if "://" in uri else SqliteSaver
    with kind.from_conn_string(uri) as saver:
        failing: Any = partial(Faulty, at=int(at), fail=die, afterwards=when == "after")
        # A compaction in full mode goes past the wrapper, which guards delta threads only
        wrapped = CachedHistorySaver(failing(saver)) if mode == "full" else None
        chat = Chat(mode, wrapped or failing(CachedHistorySaver(saver)))
        compact_thread(chat.accessor, "1", summarize=count, keep=2)


if __name__ == "__main__":
    for place in sys.argv[1:]:
        child = os.fork()
        if not child:
            compact(place)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            sys.exit(f"{place} was not killed: {status}")
