"""Awaiting a cancelled run returns while its last checkpoint is still being saved.

What is read or written next builds on the checkpoint before, and forks the thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding, RefusedByGuard

__all__ = ["DEFECT"]

_TURNS = 100
"""Turns of the event loop: half of what the last save takes."""


def _probe() -> Finding:
    """On a loop of its own, for the caller may be on one."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(asyncio.run, _cancelled()).result()
    return Finding(bool(under_way), f"saves under way when the cancelled run returned: {under_way}")


async def _cancelled() -> int:
    """How many saves are under way when awaiting the cancelled run has returned."""
    from langsmith import tracing_context

    from deerflow_saver.fixes._scenes import Saver, compiled, said, thread

    class Slow(Saver):
        async def aput(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
            if metadata.get("step") == 1:
                under_way.add(checkpoint["id"])
                saving.set()
                await _turns(2 * _TURNS)
                under_way.clear()
            return await super().aput(config, checkpoint, metadata, versions)

    async def node(_state: Any) -> Any:
        return said("out")

    under_way: set[str] = set()
    saving = asyncio.Event()
    graph = compiled({"node": node}, saver=Slow())
    with tracing_context(enabled=False):
        run = asyncio.ensure_future(graph.ainvoke(said("in"), thread(), durability="async"))
        saves = asyncio.ensure_future(saving.wait())
        await asyncio.wait({saves, run}, return_when=asyncio.FIRST_COMPLETED)
        saves.cancel()
        await _turns(_TURNS)  # the run is waiting for its save now
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        found = len(under_way)
        await _turns(2 * _TURNS)
        return found


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


DEFECT = Defect(
    slug="cancelled-run-saves",
    symptom="what follows a cancelled run at once overtakes the run's last save",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=RefusedByGuard(
        "A read waits for saves of the thread that are under way in this process; what forks all "
        "the same is refused."
    ),
    severity="corrupts",
)
