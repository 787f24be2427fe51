"""`python -m bench.guard`: what the guard adds to a saver's writes.

Raw and guarded savers take turns on one database, each on a thread of its own, at two sizes
of state. `process` is the guard with the fence of the process alone, as any foreign saver
gets it; `transaction` is the guard as LangGraph's SQL savers get it. Per call the medians,
the ratios to raw, and that of guarded to unguarded. The docs page is rewritten between its
markers.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from deerflow_saver import CachedHistorySaver
from deerflow_saver.bench.servers import Servers
from deerflow_saver.bench.storage import database, open_storage

__all__ = ["main"]

PAGE = Path(__file__).parents[1] / "docs" / "guard.md"
BEGIN, END = "<!-- bench:guard:begin -->", "<!-- bench:guard:end -->"
SIZES = {"20 kB": 20_000, "1 MB": 1_000_000}
CALLS = ("put", "put_writes, delta", "put_writes, other")
QUICK, ROUNDS, WARM_UP = 3, 60, 5


class _Line:
    """One thread with a delta channel and a large plain value beside it."""

    def __init__(self, saver: Any, size: int) -> None:
        self._saver = saver
        self._names = {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}
        self._parent: str | None = None
        self._step = -1
        self._filling = ["x" * 100] * (size // 100)

    def _config(self, cid: str | None) -> Any:
        return {"configurable": {**self._names, **({"checkpoint_id": cid} if cid else {})}}

    def turn(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """The calls of one superstep, each to be timed."""
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6())
        version = f"{self._step + 2:032}.0"
        checkpoint["channel_values"] = {"state": self._filling}
        checkpoint["channel_versions"] = {"log": version, "state": version}
        metadata = {
            "source": "loop",
            "step": self._step,
            "counters_since_delta_snapshot": {"log": (self._step + 2, self._step + 2)},
        }
        put = (self._config(self._parent), checkpoint, metadata, checkpoint["channel_versions"])
        yield "put", lambda: self._saver.put(*put)
        self._parent, self._step = checkpoint["id"], self._step + 1
        here = self._config(self._parent)
        for name, channel in (("delta", "log"), ("other", "branch:to:next")):
            write = (here, [(channel, ["w" * 100])], str(uuid.uuid4()), "~p")
            yield f"put_writes, {name}", lambda write=write: self._saver.put_writes(*write)


def measure(saver: Any, size: int, rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds per call and side."""
    sides = {
        "raw": saver,
        "off": CachedHistorySaver(saver, guard="off"),
        "guarded": CachedHistorySaver(saver),
    }
    lines = {name: _Line(side, size) for name, side in sides.items()}
    times: dict[str, dict[str, list[float]]] = {c: {s: [] for s in sides} for c in CALLS}
    for round_ in range(rounds + WARM_UP):
        names = list(sides)[round_ % 3 :] + list(sides)[: round_ % 3]
        for name in names:
            gc.collect(0)
            for call, run in lines[name].turn():
                began = time.perf_counter()
                run()
                taken = time.perf_counter() - began
                if round_ >= WARM_UP:
                    times[call][name].append(taken)
    return {c: {s: statistics.median(found) for s, found in t.items()} for c, t in times.items()}


def table(rounds: int) -> str:
    """The figures as a markdown table."""
    rows = [
        "| saver | state | call | raw, ms | cache only | cache and guard | the guard's part |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    with Servers() as servers:
        for backend, server in (("sqlite", None), ("postgres", servers.postgres)):
            for label, size in SIZES.items():
                rows += _rows(backend, server, label, size, rounds)
    return "\n".join(rows)


def _rows(backend: str, server: str | None, label: str, size: int, rounds: int) -> list[str]:
    with (
        database(backend, server, None) as address,
        open_storage(backend, address, Counter()) as opened,
    ):
        found = measure(opened.saver, size, rounds)
    rows = []
    for call, medians in found.items():
        raw, off, guarded = (medians[side] for side in ("raw", "off", "guarded"))
        ratios = " | ".join(f"{r:.2f} x" for r in (off / raw, guarded / raw, guarded / off))
        rows.append(f"| {backend} | {label} | `{call}` | {raw * 1e3:.2f} | {ratios} |")
    return rows


def main() -> None:
    """Measure, print, and rewrite the page unless `--quick` is given."""
    quick = "--quick" in sys.argv[1:]
    found = table(QUICK if quick else ROUNDS)
    print(found)
    if not quick:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
