"""Threads and processes that write, read and purge the same threads at the same time."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from support.savers import SYNC_CASES, Storage
from support.threads import Line
from support.workers import same, worker

_HERE = Path(__file__).parent
_TURNS = 25
SQLITE = next(case for case in SYNC_CASES if case.name == "sqlite")


def test_processes_that_write_and_purge_never_read_anything_wrong(
    tmp_path: Path, redis_database: str
) -> None:
    path = str(tmp_path / "checkpoints.sqlite")
    connection = sqlite3.connect(path)
    SqliteSaver(connection).setup()
    connection.close()
    command = [sys.executable, str(_HERE / "race_worker.py"), path, redis_database]
    environment = {**os.environ, "PYTHONPATH": str(_HERE.parent)}
    processes = [
        subprocess.Popen(
            [*command, str(number), str(_TURNS)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=150) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    lines = [line for out, _ in outputs for line in out.splitlines()]
    assert [line for line in lines if not line.startswith("shared")] == []
    assert any(line.startswith("shared") for line in lines)


def test_purges_race_readers_on_two_workers(storage: Storage, redis_database: str) -> None:
    """A reader that began before a purge leaves nothing behind for those that come after."""
    with SQLITE.open(storage) as first, SQLITE.open(storage) as second:
        a, b = worker(first, redis_database), worker(second, redis_database)
        line = Line(a)
        line.grow(12)
        wrong: list[Any] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                for cid in line.ids:
                    line.history(b, cid)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(15):
            a.delete_thread(line.thread_id)
            if not same(line, b, line.ids):
                wrong.append("a deleted thread was served")
            line.ids = []
            line.grow(6)
            b.get_tuple(line.config())
            if not same(line, b, line.ids):
                wrong.append("not what is stored")
        done.set()
        for reader in readers:
            reader.join()
        assert wrong == []
        assert same(line, b, line.ids)
