"""What a cell's process does: prepare, a round when told, the row at the end."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Generator
from typing import Any

from deerflow_saver.bench import scenarios
from deerflow_saver.bench.case import Case
from deerflow_saver.bench.memory import peak_rss_bytes
from deerflow_saver.bench.round_trips import counting_round_trips
from deerflow_saver.bench.sides import REDIS_SIDES, policy
from deerflow_saver.bench.stage import Cell, Stage, stage
from deerflow_saver.bench.stored_bytes import redis_bytes

__all__ = ["cell", "partner", "reader"]

Work = Generator[Any, Any, None]


def cell(work: Any) -> Work:
    """Measure: `round` with its number, `drop` after the warm-up, `finish` for the row."""
    with stage(_cell(work)) as opened, counting_round_trips(opened.counts):
        scenario = scenarios.BY_NAME[opened.case.scenario](opened)
        scenario.prepare()
        gc.collect()
        gc.freeze()  # what the imports left: no collection has to look at it
        before = _cache_info(opened)
        command = yield {"ready": True}
        while "finish" not in command:
            if "drop" in command:
                opened.recorder.drop()
                before = _cache_info(opened)
            else:
                gc.collect()
                scenario.round(command["round"])
            command = yield {}
        found = _found(opened, before)
        scenario.compare()
        found |= {"states": opened.digest.states, "digest": opened.digest.hexdigest()}
        yield found | scenario.finish()


def reader(work: Any) -> Work:
    """A new process that reads one state: how long that took it."""
    with stage(_cell(work)) as opened:
        graph = opened.graph("agent")
        command = yield {"ready": True}
        cpu, wall = time.process_time(), time.perf_counter()
        opened.face.call(graph, "get_state", command["read"])
        yield {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def partner(work: Any) -> Work:
    """The other worker of a thread: takes the turns it is told to."""
    with stage(_cell(work)) as opened:
        command = yield {"ready": True}
        thread = opened.thread("agent", "unused", 0)
        thread.config = command["thread"]
        while True:
            command = yield {}
            thread.turns = command["turn"] - 1
            thread.turn()


def _cell(work: Any) -> Cell:
    return Cell(**(work | {"case": Case(**work["case"])}))


def _found(opened: Stage, before: Counter[str]) -> dict[str, Any]:
    """The row's figures, before anything that is not measured touches cache or memory."""
    found: dict[str, Any] = {
        "metrics": opened.recorder.as_dict(),
        "peak_rss_bytes": peak_rss_bytes(),
        "cache": None,
        "hit_ratio": None,
        "redis_bytes": None,
        "saver": type(opened.raw).__name__,
        "policy": policy(opened.cell.side, opened.case.guard),
    }
    if hasattr(opened.saver, "cache_info"):
        info = opened.saver.cache_info().as_dict()
        found["cache"] = info
        hits, misses = (info[name] - before[name] for name in ("hits", "misses"))
        found["hit_ratio"] = round(hits / (hits + misses), 4) if hits + misses else None
    if opened.cell.side in REDIS_SIDES:
        found["redis_bytes"] = redis_bytes(opened.cell.redis)
    return found


def _cache_info(opened: Stage) -> Counter[str]:
    info = getattr(opened.saver, "cache_info", None)
    return Counter() if info is None else Counter(info().as_dict())
