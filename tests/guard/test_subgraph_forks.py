"""A turn that forks stores nothing in its subgraphs' namespaces either.

A subgraph is a run of its own, and its first save may come before its parent's checkpoint is
refused, or name a checkpoint of the parent's that was never put.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver, NonHeadWriteError, allow_non_head_writes
from deerflow_saver.guard.calls import target_of
from guard import bare
from guard.audit import findings, written
from guard.latency import Latency
from guard.scenarios.env import Durability, Env, Face, finish
from guard.scenarios.kinds import say
from guard.scenarios.nodes import speak
from guard.storage import Place

every_face = pytest.mark.parametrize("face", ["invoke", "ainvoke"])
every_durability = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
of_its_own = pytest.mark.parametrize("checkpointer", [None, True], ids=["per call", "stateful"])


def graph_of(env: Env, checkpointer: Any) -> Any:
    """A graph that begins with a subgraph, which has one of its own."""
    inmost = env.chain(("inmost", speak("inmost")), checkpointer=checkpointer)
    inner = env.chain(("below", inmost), ("inner", speak("inner")), checkpointer=checkpointer)
    return env.chain(("sub", inner), ("last", speak("last")))


def on(place: Place, face: Face, durability: Durability, body: Any) -> None:
    async def running() -> None:
        async with place.opened(face, Latency()) as inner:
            await body(Env(CachedHistorySaver(inner), "mixed", durability, face))

    finish(running()) if face == "invoke" else asyncio.run(running())


@of_its_own
@every_durability
@every_face
def test_a_refused_turn_stores_nothing_in_its_subgraphs(
    empty: Callable[[], Place], face: Face, durability: Durability, checkpointer: Any
) -> None:
    place = empty()

    async def fork(env: Env) -> None:
        graph, thread = graph_of(env, checkpointer), env.thread()
        await env.invoke(graph, say("in0"), thread)
        older = await env.head(graph, thread)
        await env.invoke(graph, say("in1"), thread)
        before = place.dump()
        with pytest.raises(NonHeadWriteError) as caught:
            await env.invoke(graph, say("fork"), older)
        assert caught.value.reason == "fork"
        rows = written(before, place.dump())
        assert [r for r in rows if r[0] == "checkpoints" or r[6:] == ("log",)] == []
        await env.invoke(graph, say("in2"), thread)
        values = (await env.state(graph, thread)).values
        assert "fork" not in values["log"]
        assert values["log"] == values["ref"]
        assert not findings(place.dump())

    on(place, face, durability, fork)


@of_its_own
@every_durability
@every_face
def test_an_allowed_fork_runs_its_subgraphs(
    face: Face, durability: Durability, checkpointer: Any
) -> None:
    saver = InMemorySaver()

    async def fork(env: Env) -> None:
        env.saver = CachedHistorySaver(saver)
        graph, thread = graph_of(env, checkpointer), env.thread()
        await env.invoke(graph, say("in0"), thread)
        older = await env.head(graph, thread)
        await env.invoke(graph, say("in1"), thread)
        with allow_non_head_writes(reason="a test"):
            await env.invoke(graph, say("fork"), older)

    async def running() -> None:
        await fork(Env(None, "mixed", durability, face))

    finish(running()) if face == "invoke" else asyncio.run(running())


# -- by hand --------------------------------------------------------------------------------------


def within(run: object, parent: str | None = None, *, inside: str = "") -> Any:
    """The config of a call that a run makes; `inside` names its namespace if it is nested."""
    names = {"thread_id": "t", "checkpoint_ns": inside, "checkpoint_id": parent}
    nested = {"__pregel_task_id": "task"} if inside else {}
    return {"configurable": {**names, **nested, "__pregel_runtime": run}}


def put_inside(saver: Any, run: object) -> str:
    """The first checkpoint of a nested run."""
    saver.get_tuple(within(run, inside="sub"))
    made = bare.checkpoint()
    saver.put(within(run, inside="sub"), made, bare.DELTA, {})
    return str(made["id"])


def test_a_nested_run_is_refused_before_the_run_that_it_is_part_of() -> None:
    inner, run = InMemorySaver(), object()
    saver = CachedHistorySaver(inner)
    head = bare.put(saver)
    saver.get_tuple(within(run))
    bare.put(saver, head)
    with pytest.raises(NonHeadWriteError, match="builds on a refused write") as caught:
        put_inside(saver, object())
    assert (caught.value.reason, caught.value.behind) == ("fork", True)
    assert not inner.storage["t"]["sub"]


def test_a_nested_run_that_outlives_its_parent_goes_on() -> None:
    saver, run = CachedHistorySaver(InMemorySaver()), object()
    head, made = bare.put(saver), bare.checkpoint()
    saver.get_tuple(within(run))
    saver.put(within(run, head), made, bare.DELTA, {})
    bare.put(saver, made["id"])
    put_inside(saver, object())


def test_a_nested_run_passes_while_its_parent_s_first_put_is_seen_but_not_yet_noted() -> None:
    nested: list[str] = []

    class Read(InMemorySaver):
        def put(self, config: Any, *args: Any, **kwargs: Any) -> Any:
            stored = super().put(config, *args, **kwargs)
            if within_first_put and not config["configurable"]["checkpoint_ns"]:
                within_first_put.clear()
                target = target_of(bare.config())
                assert target is not None
                saver.guard.read(target, self.get_tuple(bare.config()))
                nested.append(put_inside(saver, object()))
            return stored

    within_first_put: list[bool] = []
    inner, run = Read(), object()
    saver: Any = CachedHistorySaver(inner)
    head = bare.put(saver)
    saver.get_tuple(within(run))
    within_first_put.append(True)
    saver.put(within(run, head), bare.checkpoint(), bare.DELTA, {})
    assert list(inner.storage["t"]["sub"]) == nested != []


def test_a_run_beside_a_refused_one_is_no_part_of_it() -> None:
    saver, refused = CachedHistorySaver(InMemorySaver()), object()
    older = bare.put(saver)
    bare.put(saver, older)
    saver.get_tuple(within(refused, older))
    with pytest.raises(NonHeadWriteError, match="fork"):
        saver.put(within(refused, older), bare.checkpoint(), bare.DELTA, {})
    with pytest.raises(NonHeadWriteError, match="builds on a refused write"):
        put_inside(saver, object())
    other = {**within(object())["configurable"], "checkpoint_ns": "sub"}
    made = bare.checkpoint()
    saver.get_tuple({"configurable": other})
    saver.put({"configurable": other}, made, bare.DELTA, {})


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_nested_run_is_not_refused_for_a_head_that_somebody_deleted(way: str) -> None:
    inner, run = InMemorySaver(), object()
    saver = CachedHistorySaver(inner)
    older = bare.put(saver)
    newest = bare.put(saver, older)
    del inner.storage["t"][""][newest]
    saver.get_tuple(within(run, older))
    if way == "sync":
        made = put_inside(saver, object())
    else:
        made, nested = bare.checkpoint()["id"], object()
        await saver.aget_tuple(within(nested, inside="sub"))
        await saver.aput(
            within(nested, inside="sub"), {**bare.checkpoint(), "id": made}, bare.DELTA, {}
        )
    assert list(inner.storage["t"]["sub"]) == [made]


def test_a_nested_run_of_a_thread_that_somebody_deleted_is_not_refused() -> None:
    inner, run = InMemorySaver(), object()
    saver = CachedHistorySaver(inner)
    bare.put(saver, bare.put(saver))
    inner.delete_thread("t")
    saver.get_tuple(within(run))
    made = put_inside(saver, object())
    assert list(inner.storage["t"]["sub"]) == [made]
