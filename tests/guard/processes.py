"""Starting racers, telling them what to do, and auditing what they leave behind."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from guard.audit import Findings, findings
from guard.racer import Spec, graph_of, serve, turn_of
from guard.storage import Place
from support.upstream import reloads_what_ran

__all__ = ["Report", "Worker", "audit", "workers"]

_TESTS = str(Path(__file__).parents[1])
THREAD: Any = {"configurable": {"thread_id": "thread"}}

# One process imports LangGraph and forks the racers: starting each afresh takes seconds.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["guard.racer"])


class Worker:
    """One racer."""

    def __init__(self, spec: Spec) -> None:
        self._connection, theirs = _processes.Pipe()
        self._process = _processes.Process(target=serve, args=(spec, theirs), daemon=True)
        with _importable():
            self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        """Wait until it can start at once."""
        assert self.answer() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if it has not ended itself."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def tell(self, *texts: str, death: tuple[str, str] | None = None) -> None:
        """Let it take turns, and die in one of their writes; do not wait."""
        self._connection.send((texts, death))

    def answer(self) -> Any:
        """Wait for what it has to say."""
        return self._connection.recv()

    def ended(self) -> int | None:
        """Wait for its end; the exit code."""
        self._process.join()
        return self._process.exitcode


@contextmanager
def _importable() -> Iterator[None]:
    """Let the forking process, which starts with the first racer, import the tests' modules."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_TESTS, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def workers(*specs: Spec) -> Iterator[list[Worker]]:
    """Racers that are all ready."""
    with ExitStack() as stack:
        started = [Worker(spec) for spec in specs]
        yield [stack.enter_context(worker) for worker in started]


class Report:
    """What racers answered, held against what is stored."""

    def __init__(self, place: Place, answers: list[dict[str, Any]]) -> None:
        self.errors = [answer["error"] for answer in answers if "error" in answer]
        self.refused = [answer["text"] for answer in answers if "refused" in answer]
        accepted = [answer for answer in answers if "log" in answer]
        # Older releases show what a refused run left on the head in delta channels, but not in
        # plain ones: there the plain channel tells which turns the thread is made of
        self._channel = "log" if reloads_what_ran() else "ref"
        self.accepted = sorted(accepted, key=lambda answer: len(answer[self._channel]))
        dump = place.dump()
        self.findings: Findings = findings(dump)
        with place.looking() as looking:
            graph = graph_of(looking)
            self.log: list[str] = graph.get_state(THREAD).values.get(self._channel, [])
            right = self._channel == "log"
            self.disagreeing = [
                snapshot.config["configurable"]["checkpoint_id"]
                for snapshot in graph.get_state_history(THREAD)
                if right
                and (snapshot.values.get("log") or []) != (snapshot.values.get("ref") or [])
            ]
            mixed = [row for row in map(_turns_on, looking.list(THREAD)) if len(row) > 1]
            self.mixed_rows = mixed if right else []

    def problems(self) -> list[str]:
        """What contradicts one line of turns, each whole or raised; empty if nothing does."""
        known = set(self.refused)
        texts = [text for answer in self.accepted for text in turn_of(answer["text"])]
        returned = [(answer["text"], answer[self._channel]) for answer in self.accepted]
        lost = [text for text, log in returned if self.log[: len(log)] != log]
        landed = [text for text in self.log if text.split(":", 1)[-1] not in known]
        checks = {
            f"errors: {self.errors[:3]}": self.errors,
            f"not a line: {self.findings}": self.findings,
            f"rows of several turns on one checkpoint: {self.mixed_rows[:3]}": self.mixed_rows,
            f"delta and plain channel differ at {self.disagreeing[:3]}": self.disagreeing,
            f"accepted but not in the thread as returned: {lost[:3]}": lost,
            "the state is not the accepted turns in order": landed != texts,
        }
        return [problem for problem, found in checks.items() if found]


def _turns_on(row: Any) -> set[str]:
    """The turns whose delta rows a checkpoint has."""
    return {
        text.split(":", 1)[-1]
        for _, name, value in row.pending_writes or ()
        if name == "log"
        for text in value
    }


def audit(place: Place, answers: list[dict[str, Any]]) -> Report:
    """Look at the thread that racers left behind."""
    return Report(place, answers)
