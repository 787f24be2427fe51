"""Threads and tasks of one process on one thread of a conversation, from its first turn on.

They share a wrapper, so whatever it remembers of one run must not pass for another's.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from guard.bare import aput, config
from guard.latency import Latency
from guard.processes import Report, audit
from guard.racer import graph_of
from guard.scenarios.env import finish
from guard.scenarios.kinds import say
from guard.storage import Memory, Place

WRITERS, TURNS, ROUNDS = 6, 3, 3
THREAD: Any = {"configurable": {"thread_id": "thread"}}
every_durability = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
every_face = pytest.mark.parametrize("face", ["invoke", "ainvoke"])


async def race(place: Place, face: str, durability: Any, guard: str) -> Report:
    async with place.opened(face, Latency()) as inner:
        graph = graph_of(CachedHistorySaver(inner, guard=guard))

        async def writer(number: int) -> list[dict[str, Any]]:
            return [await turn(f"{number}-{count}") for count in range(TURNS)]

        async def turn(text: str) -> dict[str, Any]:
            try:
                if face == "invoke":
                    result = graph.invoke(say(text), THREAD, durability=durability)
                else:
                    result = await graph.ainvoke(say(text), THREAD, durability=durability)
            except NonHeadWriteError as error:
                return {"text": text, "refused": error.reason}
            return {"text": text, "log": result["log"], "ref": result["ref"]}

        if face == "invoke":
            with ThreadPoolExecutor(WRITERS) as pool:
                done = list(pool.map(lambda number: finish(writer(number)), range(WRITERS)))
        else:
            done = await asyncio.gather(*map(writer, range(WRITERS)))
    return audit(place, [answer for answers in done for answer in answers])


def run(place: Place, face: str, durability: Any, guard: str = "refuse") -> Report:
    racing = race(place, face, durability, guard)
    return finish(racing) if face == "invoke" else asyncio.run(racing)


@every_durability
@every_face
def test_turns_of_one_process_land_whole_or_are_refused(
    empty: Any, face: str, durability: Any
) -> None:
    for _ in range(ROUNDS):
        report = run(empty(), face, durability)
        assert report.problems() == []
        assert report.accepted


@every_face
def test_without_the_guard_turns_of_one_process_break_the_thread(face: str) -> None:
    reports = [run(Memory(), face, *axes, "off") for axes in product(["sync", "async", "exit"])]
    assert any(report.problems() for report in reports)


@pytest.mark.parametrize("each_reads", [False, True])
async def test_tasks_write_for_the_caller_that_read_and_not_for_one_another(
    *, each_reads: bool
) -> None:
    saver = CachedHistorySaver(InMemorySaver())
    head = await aput(saver)
    await saver.aget_tuple(config())
    has_read = asyncio.Barrier(2)

    async def write(number: int) -> str:
        if each_reads:
            await saver.aget_tuple(config(head))
        await has_read.wait()
        try:
            await saver.aput_writes(config(head), [("log", [number])], f"task {number}")
        except NonHeadWriteError as error:
            return error.reason
        return "stored"

    done = sorted(await asyncio.gather(write(0), write(1)))
    assert done == (["foreign writes", "stored"] if each_reads else ["stored", "stored"])
    if each_reads:
        with pytest.raises(NonHeadWriteError, match="foreign"):
            await aput(saver, head)
    else:
        await aput(saver, head)
