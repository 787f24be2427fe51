"""A process that reads, continues and purges threads that other processes work on, too."""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver, DeerflowSaverError
from deerflow_saver.cache.redis import RedisHistoryCache
from support.threads import Line

THREADS = ("one", "two", "three")


def head(saver: Any, thread: str) -> Any:
    """The newest row, as every run reads it first."""
    return saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})


def compare(saver: Any, row: Any) -> str | None:
    """Whether a history is the raw saver's, before or after: others write meanwhile."""
    asked = {"config": row.config, "channels": ["log"]}
    before = saver.inner.get_delta_channel_history(**asked)
    answer = saver.get_delta_channel_history(**asked)
    after = saver.inner.get_delta_channel_history(**asked)
    if answer in (before, after):
        return None
    return f"{row.config['configurable']}: {answer} is neither {before} nor {after}"


def work(saver: Any, line: Line, turn: int, *, purges: bool) -> str | None:
    """One turn: read the head and compare; then go on, or delete."""
    row = head(saver, line.thread_id)
    wrong = compare(saver, row) if row is not None else None
    if purges and turn % 5 == 4:
        saver.delete_thread(line.thread_id)
        return wrong or gone(saver, row)
    line.ids = [row.config["configurable"]["checkpoint_id"]] if row is not None else []
    try:
        line.grow(2, value=f"{turn} ")
    except DeerflowSaverError:
        return wrong  # another process was first
    row = head(saver, line.thread_id)
    return wrong or (compare(saver, row) if row is not None else None)


def gone(saver: Any, row: Any) -> str | None:
    """A deleted checkpoint has no history, however many others have just read it."""
    return compare(saver, row) if row is not None else None


def main(path: str, url: str, number: int, turns: int) -> None:
    """Take turns and print what was wrong."""
    inner = SqliteSaver(sqlite3.connect(path, check_same_thread=False, timeout=60))
    with RedisHistoryCache.from_url(url, timeout=5.0) as cache:
        saver = CachedHistorySaver(inner, cache)
        for turn in range(turns):
            line = Line(saver, thread_id=THREADS[(turn + number) % len(THREADS)])
            wrong = work(saver, line, turn, purges=number == 0)
            if wrong is not None:
                sys.stdout.write(f"{wrong}\n")
        info = saver.cache_info()
        sys.stdout.write(f"shared {info.shared}\n" * (info.shared > 0))
        sys.stdout.write(f"trouble {info}\n" * (info.errors + info.outages > 0))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
