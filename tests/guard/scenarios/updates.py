"""Legal: states written from outside, at the head."""

from __future__ import annotations

from typing import Any

from langgraph.graph import END, START
from langgraph.types import Overwrite, Send, StateUpdate

from guard.scenarios.env import Env
from guard.scenarios.kinds import say
from guard.scenarios.nodes import speak
from guard.scenarios.registry import legal

INPUT = "__input__"
"""What `update_state` takes as the node that is the thread's user."""


def pair(env: Env) -> Any:
    return env.chain(("a", speak("a")), ("b", speak("b")))


async def _updated(env: Env, values: Any, *args: Any, **kwargs: Any) -> None:
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), values, *args, **kwargs)
    await env.invoke(graph, say("more"), env.thread())


@legal
async def update_head(env: Env) -> None:
    await _updated(env, say("u"))


@legal
async def update_head_as_node(env: Env) -> None:
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), say("u"), as_node="a")
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def update_head_explicit_id(env: Env) -> None:
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    for number in range(3):
        await env.update(graph, await env.head(graph, env.thread()), say(f"u{number}"))
    await env.invoke(graph, say("more"), env.thread())


@legal
async def update_END(env: Env) -> None:  # noqa: N802 - the node's name
    graph = env.chain(("a", speak("a")), ("b", speak("b")), interrupt_before=["b"])
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), None, as_node=END)
    await env.invoke(graph, say("more"), env.thread())


@legal
async def update_INPUT(env: Env) -> None:  # noqa: N802 - the node's name
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), say("u"), as_node=INPUT)
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def update_overwrite(env: Env) -> None:
    await _updated(env, {"log": Overwrite(["new"]), "ref": Overwrite(["new"])})


@legal
async def update_fresh(env: Env) -> None:
    graph = pair(env)
    await env.update(graph, env.thread(), say("u"), as_node="a")
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("in"), env.thread())


@legal
async def update_fresh_input(env: Env) -> None:
    graph = pair(env)
    await env.update(graph, env.thread(), say("u"), as_node=INPUT)
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("in"), env.thread())


@legal
async def update_fresh_partial(env: Env) -> None:
    graph = pair(env)
    await env.update(graph, env.thread(), {"x": 1}, as_node="a")
    await env.update(graph, env.thread(), say("u"), as_node="a")
    await env.invoke(graph, say("in"), env.thread())


@legal
async def bulk_update(env: Env) -> None:
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.bulk(
        graph,
        env.thread(),
        [StateUpdate(say("u0"), "a")],
        [StateUpdate(say("u1"), "b")],
        [StateUpdate(say("u2"), "a")],
    )
    await env.invoke(graph, say("more"), env.thread())


@legal
async def store_parallel_updates_bulk(env: Env) -> None:
    graph = env.fan(("a", speak("a")), ("b", speak("b")), then=speak("then"))
    await env.invoke(graph, say("in"), env.thread())
    for _ in range(2):
        await env.bulk(
            graph, env.thread(), [StateUpdate(say("ua"), "a"), StateUpdate(say("ub"), "b")]
        )
    await env.invoke(graph, say("more"), env.thread())


@legal
async def update_send_node(env: Env) -> None:
    builder = env.builder()
    builder.add_node("a", speak("a"))
    builder.add_node("worker", lambda s: say(f"w{s['go']}"))
    builder.add_edge(START, "a")
    builder.add_conditional_edges(
        "a", lambda s: [Send("worker", {"go": str(number)}) for number in range(2)], ["worker"]
    )
    builder.add_edge("worker", END)
    graph = env.compile(builder)
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), say("u"), as_node="a")
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def update_task_id(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")), interrupt_before=["b"])
    await env.invoke(graph, say("in"), env.thread())
    pending = (await env.state(graph, env.thread())).tasks[0]
    await env.bulk(graph, env.thread(), [StateUpdate(say("u"), "b", pending.id)])
    await env.invoke(graph, say("more"), env.thread())
