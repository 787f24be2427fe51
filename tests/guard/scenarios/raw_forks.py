"""Forks: by callers of the saver itself, in subgraphs' namespaces, and in graphs of channels."""

from __future__ import annotations

from typing import Any

from langgraph.types import StateSnapshot

from guard.scenarios.env import Env
from guard.scenarios.forks import before_b, ended, left, older
from guard.scenarios.kinds import say
from guard.scenarios.raw import go, pregel, put_copy, row
from guard.scenarios.registry import fork
from guard.scenarios.subgraphs import inner, outer


@fork
async def f_raw_put_old_parent(env: Env) -> None:
    _, place = await left(env)
    found = await row(env, place)
    await put_copy(env, found, found.config)


@fork
async def f_raw_put_no_parent(env: Env) -> None:
    await left(env)
    found = await row(env, env.thread())
    await put_copy(env, found, env.thread(checkpoint_ns=""))


@fork
async def f_raw_put_writes_old(env: Env) -> None:
    _, place = await left(env, before_b)
    found = await row(env, place)
    await env.call(env.saver, "put_writes", found.config, [("log", ["late"])], "a-late-task")


@fork
async def f_pregel_raw_input_older(env: Env) -> None:
    graph = pregel(env)
    for turn in range(3):
        await env.invoke(graph, go(f"in{turn}"), env.thread())
    place = await older(env, graph, ended)
    env.on_fork()
    await env.invoke(graph, go("fork"), place)


async def _remembering(env: Env) -> Any:
    """A thread of three turns with a subgraph that has a memory of its own."""
    graph = outer(env, inner(env, checkpointer=True))
    for turn in range(3):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
    return graph


def _before_sub(snapshot: StateSnapshot) -> bool:
    return snapshot.next == ("sub",)


@fork
async def f_sub_true_parent_replay(env: Env) -> None:
    graph = await _remembering(env)
    place = await older(env, graph, _before_sub)
    env.on_fork()
    await env.invoke(graph, None, place)


@fork
async def f_sub_update_older_subns(env: Env) -> None:
    graph = await _remembering(env)
    namespace = env.thread(checkpoint_ns="sub")
    if env.sync:
        rows = list(env.saver.list(namespace))
    else:
        rows = [found async for found in env.saver.alist(namespace)]
    env.on_fork()
    await env.update(graph, rows[-1].config, say("fork"), as_node="s1")


@fork
async def f_sub_replay_subcfg(env: Env) -> None:
    graph = await _remembering(env)
    place = await older(env, graph, _before_sub)
    tasks = (await env.state(graph, place, subgraphs=True)).tasks
    states = [task.state for task in tasks if isinstance(task.state, StateSnapshot)]
    env.on_fork()
    await env.invoke(graph, None, states[0].config if states else place)
