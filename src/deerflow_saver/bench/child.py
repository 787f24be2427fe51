"""A fresh process that does one piece of work, asked line by line.

Each line to it and from it is one JSON object. What it prints besides goes to its error output,
whose last line becomes part of the error if it dies.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import IO, Any, Self

from deerflow_saver.bench.errors import ChildError, safe_error

__all__ = ["Child", "Here"]

_GRACE = 5.0
_MODULE = "deerflow_saver.bench.worker"


class Child:
    """A worker process; `ask` blocks for its answer.

    Args:
        role: what the worker is (see `worker.ROLES`).
        work: a dataclass or JSON-like value that says what to do.
        timeout: seconds that all its answers together may take.
        profile: where to leave a profile of its work, if anywhere.

    """

    def __init__(self, role: str, work: Any, *, timeout: float, profile: str | None = None) -> None:
        self._left = self._timeout = timeout
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in _release
        self._lines: queue.Queue[str] = queue.Queue()
        self._began = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this package
            [sys.executable, "-W", "ignore", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,  # so that what it starts can be ended with it
        )
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()
        plain = asdict(work) if is_dataclass(work) and not isinstance(work, type) else work
        self.send({"role": role, "work": plain, "profile": profile})

    def send(self, command: Any) -> None:
        """Give it a command; `answer` has what comes back."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        with suppress(BrokenPipeError):  # its end is noticed at the answer
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def answer(self) -> Any:
        """The next answer.

        Raises:
            ChildError: it failed, died, or took too long; it has been ended.

        """
        began = time.perf_counter()
        try:
            line = self._lines.get(timeout=max(0.0, self._left))
        except queue.Empty:
            self.kill()
            raise ChildError(f"child process timed out after {self._timeout:g} seconds") from None
        self._left -= time.perf_counter() - began
        found = self._parsed(line)
        if isinstance(found, dict) and "error" in found:
            self.close()
            raise ChildError(found["error"])
        return found

    def ask(self, command: Any) -> Any:
        """Send a command and wait for its answer."""
        self.send(command)
        return self.answer()

    @property
    def lifetime_ms(self) -> float:
        """How long ago it was started."""
        return round((time.perf_counter() - self._began) * 1e3, 1)

    def finish(self, command: Any) -> Any:
        """Its last answer; then it must end well."""
        found = self.ask(command)
        self.close()
        if self._process.returncode:
            raise ChildError(f"child process exited with status {self._process.returncode}")
        return found

    def close(self) -> None:
        """Let it end, and make sure that it has."""
        self._hang_up()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
        self._release()

    def kill(self) -> None:
        """End it and all it started."""
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._release()

    def __enter__(self) -> Self:
        """Wait until it is ready."""
        try:
            self.answer()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """End it."""
        self.close()

    def _read(self, stream: IO[str] | None) -> None:
        for line in stream or ():
            self._lines.put(line)
        self._lines.put("")

    def _parsed(self, line: str) -> Any:
        if not line.strip():
            self.kill()
            raise ChildError(self._epitaph())
        try:
            return json.loads(line)
        except ValueError:
            self.kill()
            status = self._process.returncode
            message = f"child process returned {status} with malformed JSON"
            raise ChildError(message) from None

    def _epitaph(self) -> str:
        message = f"child process returned {self._process.returncode} without a result"
        return f"{message}: {safe_error(self._said)}" if self._said else message

    def _hang_up(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):  # nobody may be there to read what is left
                self._process.stdin.close()

    def _release(self) -> None:
        self._hang_up()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if not self._complaints.closed:
            self._complaints.seek(0)
            said = [line for line in self._complaints.read().splitlines() if line.strip()]
            self._said = said[-1] if said else ""
            self._complaints.close()


class Here:
    """The same work in this process, for checks whose figures nobody keeps."""

    lifetime_ms = 0.0

    def __init__(self, work: Generator[Any, Any, None]) -> None:
        self._work = work
        self._command: Any = None

    def send(self, command: Any) -> None:
        """Keep a command until its answer is asked for."""
        self._command = command

    def answer(self) -> Any:
        """Do what was commanded last.

        Raises:
            ChildError: it failed.

        """
        try:
            return self._work.send(self._command)
        except Exception as error:
            raise ChildError(safe_error(error)) from error

    def finish(self, command: Any) -> Any:
        """The last answer."""
        self.send(command)
        return self.answer()

    def close(self) -> None:
        """End the work."""
        self._work.close()
