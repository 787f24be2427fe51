"""Parallel tasks' writes replay by task path, as LangGraph applied them, on every saver."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from deerflow_saver import CachedHistorySaver
from support.savers import SaverCase, Storage, every_case
from walks.lines import Face

PATHS = [f"~__pregel_pull, node{number}" for number in range(4)]
TASKS = ["d", "b", "c", "a"]
"""Task ids are hashes: they sort in another order than the paths."""


async def _superstep(face: Face, cid: str, parent: str | None) -> None:
    """Parallel tasks finish in any order; a value names its place in the right one."""
    await face.put(cid, parent)
    for number in (2, 0, 3, 1):
        await face.write(cid, f"{cid}.{number}", task=f"{TASKS[number]}-{cid}", path=PATHS[number])
    await face.write(cid, f"{cid}.input", task="00000000-0000")


def _expected(*cids: str) -> list[str]:
    return [f"{cid}.{place}" for cid in cids for place in ("input", 0, 1, 2, 3)]


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


@every_case
async def test_a_cold_wrapper_replays_by_path(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        writer = Face(case, CachedHistorySaver(raw, guard="off", cache=None))
        await _superstep(writer, "1", None)
        await _superstep(writer, "2", "1")
        await writer.put("3", "2")
        # What passed is remembered by the wrapper; its histories are forgotten
        writer.saver.cache_clear()
        assert await writer.values("3") == _expected("1", "2")
        assert await writer.values("2") == _expected("1")


@every_case
async def test_what_was_written_here_replays_by_path(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, CachedHistorySaver(raw, guard="off"))
        done: list[str] = []
        for number, cid in enumerate(("1", "2", "3", "4")):
            await _superstep(face, cid, str(number) if number else None)
            assert await face.values(cid) == _expected(*done)
            done.append(cid)


@every_case
async def test_another_process_replays_by_path_where_the_saver_stores_it(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await _superstep(plain, "1", None)
        await _superstep(plain, "2", "1")
        await plain.put("3", "2")
        face = Face(case, CachedHistorySaver(raw, guard="off"))
        by_path = await face.values("3") == _expected("1", "2")
        paths = face.saver._self_core.walker.paths
        lost = paths is not None and type(paths).__name__ == "RememberedPaths"
        assert by_path is not lost
        if lost:  # nothing is made up: what the saver says
            assert await face.values("3") == await plain.values("3")


# -- through a graph -------------------------------------------------------------------------


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend)]
    ref: Annotated[list[str], operator.add]


def _node(name: str) -> Any:
    return lambda _state: {"log": [name], "ref": [name]}


def _fan_out(saver: Any) -> Any:
    """Six nodes side by side, then twelve tasks of one node."""
    builder: Any = StateGraph(State)
    for number in range(6):
        builder.add_node(f"n{number}", _node(f"n{number}"))
        builder.add_edge(START, f"n{number}")
        builder.add_edge(f"n{number}", "gather")
    builder.add_node("gather", lambda _state: {})
    builder.add_node("send", lambda sent: {"log": [sent["word"]], "ref": [sent["word"]]})
    builder.add_conditional_edges(
        "gather", lambda _state: [Send("send", {"word": f"m{number}"}) for number in range(12)]
    )
    builder.add_edge("send", END)
    return builder.compile(checkpointer=saver)


@every_case
async def test_a_reload_reads_what_the_run_made_of_parallel_tasks(
    case: SaverCase, storage: Storage
) -> None:
    thread: Any = {"configurable": {"thread_id": "thread"}}
    async with case.aopen(storage) as raw:
        saver = CachedHistorySaver(raw)
        graph = _fan_out(saver)
        for turn in range(3):
            said = {"log": [f"in{turn}"], "ref": [f"in{turn}"]}
            if case.kind == "async":
                live = await graph.ainvoke(said, thread, durability="sync")
                state = await graph.aget_state(thread)
                history = [snapshot async for snapshot in graph.aget_state_history(thread)]
            else:
                live = graph.invoke(said, thread, durability="sync")
                state = graph.get_state(thread)
                history = list(graph.get_state_history(thread))
            assert live["log"] == live["ref"] == state.values["log"]
            for snapshot in history:
                assert snapshot.values.get("log", []) == snapshot.values.get("ref", [])
            saver.cache_clear()
