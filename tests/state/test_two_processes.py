"""Two processes, frozen in different modes, on one database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.savers import Storage

TESTS = Path(__file__).parents[1]
MISMATCH = {
    "error": "CheckpointModeMismatchError",
    "text": "Thread requires delta mode; materialize and convert its checkpoints before using "
    "full mode.",
}


class Worker:
    """One of the processes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __call__(self, thread_id: str, name: str, n: int = 0) -> Any:
        """Let it do something; gives its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([thread_id, name, n]) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)


@contextmanager
def worker(mode: str, url: str) -> Iterator[Worker]:
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, str(TESTS / "state" / "mode_worker.py"), mode, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},  # shows sets alike
    ) as process:
        made = Worker(process)
        assert made.answer() == [mode, 3]
        try:
            yield made
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_thread_belongs_to_the_delta_process_from_its_first_write_on(
    storage: Storage, kind: str
) -> None:
    url = storage.postgres_uri if kind == "postgres" else storage.sqlite_path
    with worker("full", url) as full, worker("delta", url) as delta:
        for thread_id in ("one", "other"):
            assert full(thread_id, "turn", 1)["log"] == ["in 1", "work 1"]
        # a full thread is read by a delta process as it is
        assert delta("one", "shown") == full("one", "shown")
        assert full("one", "turn", 2)["log"][-1] == "work 3"
        assert delta("one", "turn", 3)["log"] == [
            "in 1", "work 1", "in 2", "work 3", "in 3", "work 5",
        ]  # fmt: skip
        shown = delta("one", "shown")
        for name in ("turn", "ask", "answer", "update", "replace", "compact", "branch", "page"):
            assert full("one", name, 2) == MISMATCH, name
        assert delta("one", "shown") == shown
        # everything else goes on
        assert full("other", "turn", 4)["log"][-1] == "work 3"
        assert full("new", "turn", 5)["log"] == ["in 5", "work 1"]
        assert delta("one", "ask", 6)["log"][-1] == "work 7"
        assert full("one", "answer", 6) == MISMATCH
        assert delta("one", "answer", 6)["log"][-2:] == ["answered yes 6", "work 7"]
