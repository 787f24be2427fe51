"""Legal: callers of the saver itself, and graphs built from channels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from langgraph.channels import EphemeralValue
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.types import Overwrite

from guard.scenarios.env import Env
from guard.scenarios.interrupts import asking_beside
from guard.scenarios.kinds import channel, heard, say
from guard.scenarios.registry import legal
from guard.scenarios.updates import pair


def pregel(env: Env, attend: Callable[[], None] = lambda: None) -> Any:
    """A graph whose input channels are `log` and `ref` themselves."""

    def said(state: Any) -> Any:
        attend()
        return say(f"n{heard(state)}")

    node = (
        NodeBuilder()
        .subscribe_to("go", read=False)
        .read_from("log", "ref")
        .do(said)
        .write_to(log=lambda out: out["log"], ref=lambda out: out["ref"])
    )
    channels = {name: channel(env.kind, name) for name in ("log", "ref")}
    return Pregel(
        nodes={"n": node},
        channels={**channels, "go": EphemeralValue(str)},
        input_channels=["log", "ref", "go"],
        output_channels=["log", "ref"],
        checkpointer=env.saver,
    )


def go(*texts: str) -> Any:
    return {**say(*texts), "go": "!"}


async def row(env: Env, config: Any) -> CheckpointTuple:
    """A stored checkpoint; the newest if the config names none."""
    found = await env.call(env.saver, "get_tuple", config)
    assert found is not None
    return found  # type: ignore[no-any-return]


async def put_copy(env: Env, found: CheckpointTuple, parent: Any, **metadata: Any) -> Any:
    """Store a stored checkpoint again under a new id, as scripts do to change its metadata."""
    checkpoint = {**found.checkpoint, "id": str(uuid6(clock_seq=-2))}
    step = found.metadata.get("step", 0) + 1
    fresh = {**found.metadata, "source": "update", "step": step, **metadata}
    return await env.call(env.saver, "put", parent, checkpoint, fresh, {})


async def put_rows(env: Env, place: Any, rows: Any) -> None:
    """Store captured pending writes under a checkpoint."""
    by_task = defaultdict(list)
    for task_id, name, value in rows:
        by_task[task_id].append((name, value))
    for task_id, writes in by_task.items():
        await env.call(env.saver, "put_writes", place, writes, task_id)


@legal
async def df_raw_put_head(env: Env) -> None:
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    head = await row(env, env.thread())
    await put_copy(env, head, head.config, title="a title")
    await env.invoke(graph, say("more"), env.thread())


@legal
async def df_rollback_linear(env: Env) -> None:
    graph = asking_beside(env)
    await env.invoke(graph, say("in"), env.thread())
    before = await row(env, env.thread())
    held = (await env.state(graph, env.thread())).values
    await env.invoke(graph, say("undone"), env.thread())
    restored = await env.update(
        graph,
        env.thread(),
        {name: Overwrite(list(held[name])) for name in ("log", "ref")},
        as_node="then",
    )
    await put_rows(env, restored, before.pending_writes or [])
    await env.invoke(graph, say("more"), env.thread())


@legal
async def pregel_raw_turns(env: Env) -> None:
    graph = pregel(env)
    for turn in range(3):
        await env.invoke(graph, go(f"in{turn}"), env.thread())


@legal
async def pregel_raw_explicit_head(env: Env) -> None:
    graph = pregel(env)
    await env.invoke(graph, go("in"), env.thread())
    for turn in range(2):
        await env.invoke(graph, go(f"in{turn}"), await env.head(graph, env.thread()))
