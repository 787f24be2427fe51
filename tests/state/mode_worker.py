"""A process with a mode of its own: reads operations as lines of JSON, answers in lines of JSON."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from typing import Any

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.channel_mode import freeze, frozen
from deerflow_saver.errors import DeerflowSaverError
from state.histories import Process


def _opened(url: str) -> AbstractContextManager[Any]:
    if url.startswith("postgresql:"):
        return PostgresSaver.from_conn_string(url)
    return SqliteSaver.from_conn_string(url)


def _answer(process: Process, name: str, n: int) -> Any:
    if name == "shown":
        return repr(process.shown())
    try:
        return process.perform(name, n)
    except DeerflowSaverError as error:
        return {"error": type(error).__name__, "text": str(error)}


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what, default=sorted) + "\n")
    sys.stdout.flush()


def main(mode: Any, url: str) -> None:
    """Serve one process frozen in `mode` on the database at `url`."""
    freeze(mode, 3)
    with _opened(url) as inner:
        inner.setup()
        saver = CachedHistorySaver(inner)
        _say(frozen())
        for line in sys.stdin:
            thread_id, name, n = json.loads(line)
            _say(_answer(Process(saver, mode, 3, thread_id), name, n))


if __name__ == "__main__":
    main(*sys.argv[1:])
