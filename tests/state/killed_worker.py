"""Children that rewrite a thread, each killed at a storage call; prints which were killed."""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import linearize_resume, restore
from support.agent_in_modes import Agent
from support.faulty import CALLS
from support.kills import Kill
from support.modes import thread


def die_at(saver: Any, at: int, *, afterwards: bool) -> None:
    """Patch the class, so that the copies which write inside a transaction die as well."""
    calls = iter(range(-at, sys.maxsize))

    def dying(method: Any) -> Any:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            due = self.conn is saver.conn and next(calls) == 0
            if due and not afterwards:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = method(self, *args, **kwargs)
            if due:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    for name in CALLS:
        setattr(type(saver), name, dying(getattr(type(saver), name)))


def rewrite(kill: Kill) -> None:
    cls: Any = PostgresSaver if kill.uri.startswith("postgres") else SqliteSaver
    with cls.from_conn_string(kill.uri) as saver:
        if kill.at is not None:
            die_at(saver, kill.at, afterwards=kill.afterwards)
        accessor = Agent(kill.mode, CachedHistorySaver(saver)).accessor
        if kill.selected:
            linearize_resume(accessor, thread(kill.thread_id, checkpoint_id=kill.selected))
        else:
            restore(accessor, kill.point, thread_id=kill.thread_id, run_id="the run")


def child_dies(kill: Kill) -> bool:
    """Whether a child that does it is killed, rather than come to its end."""
    child = os.fork()
    if not child:
        rewrite(kill)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if status and not killed:
        sys.exit(f"{kill} failed: {status}")
    return killed


if __name__ == "__main__":
    ended = []
    for kill in pickle.loads(Path(sys.argv[1]).read_bytes()):
        if kill.at is None:
            rewrite(kill)
        ended.append(kill.at is not None and child_dies(kill))
    print(json.dumps(ended))  # noqa: T201
