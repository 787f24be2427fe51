"""Children that go back in a thread of a SQLite file and are killed at a storage call."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import CheckpointStateAccessor, linearize_resume
from support.agent_in_modes import Agent
from support.faulty import Faulty
from support.modes import thread


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def go_back(path: str, checkpoint_id: str) -> None:
    when, at = Path(path).stem.split("-")
    with SqliteSaver.from_conn_string(path) as saver:
        faulty = Faulty(CachedHistorySaver(saver), int(at), die, afterwards=when == "after")
        accessor = CheckpointStateAccessor(Agent("delta", saver).graph, faulty, "delta")
        linearize_resume(accessor, thread(checkpoint_id=checkpoint_id))


if __name__ == "__main__":
    selected, *paths = sys.argv[1:]
    for place in paths:
        child = os.fork()
        if not child:
            go_back(place, selected)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            sys.exit(f"{place} was not killed: {status}")
