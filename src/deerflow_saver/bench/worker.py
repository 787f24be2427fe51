"""The process of one cell: `python -m deerflow_saver.bench.worker`, driven by `child.Child`."""

from __future__ import annotations

import cProfile
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from langsmith import tracing_context

from deerflow_saver.bench import measuring
from deerflow_saver.bench.errors import safe_error

__all__ = ["ROLES", "Work", "main"]

Work = Generator[Any, Any, None]
"""Yields the answer to what it was sent; first, that it is ready."""


def _channels(work: Any) -> Work:
    from deerflow_saver.bench.channels import running

    return running.work(work)


def _production(work: Any) -> Work:
    from deerflow_saver.bench.channels import production

    return production.work(work)


ROLES: dict[str, Callable[[Any], Work]] = {
    "cell": measuring.cell,
    "reader": measuring.reader,
    "partner": measuring.partner,
    "channels": _channels,
    "production": _production,
}


def main() -> int:
    """Serve commands until there are no more; 1 if the work failed."""
    commands, answer = _wires()
    asked = json.loads(next(commands))
    with tracing_context(enabled=False), _profiled(asked["profile"]):
        try:
            _serve(ROLES[asked["role"]](asked["work"]), commands, answer)
        except Exception as error:  # noqa: BLE001 - whatever happened, the row shall tell
            address = asked["work"].get("address", "") if isinstance(asked["work"], dict) else ""
            folder = os.path.dirname(address) if os.path.isabs(address) else ""  # noqa: PTH117, PTH120
            answer({"error": safe_error(error, folder)})
            return 1
    return 0


def _serve(work: Work, commands: Iterator[str], answer: Callable[[Any], None]) -> None:
    try:
        answer(next(work))
        for line in commands:
            answer(work.send(json.loads(line)))
    finally:
        work.close()


def _wires() -> tuple[Iterator[str], Callable[[Any], None]]:
    """The lines from and to the parent; what anybody prints goes to the error output instead."""
    wire = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def answer(found: Any) -> None:
        wire.write(json.dumps(found) + "\n")
        wire.flush()

    return iter(sys.stdin.readline, ""), answer


@contextmanager
def _profiled(path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    with cProfile.Profile() as profile:
        yield
    profile.dump_stats(path)


if __name__ == "__main__":
    sys.exit(main())
