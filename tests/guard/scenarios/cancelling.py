"""Runs that are cancelled: once their saves have arrived, and while they are still under way."""

from __future__ import annotations

import asyncio
from typing import Any

from guard.scenarios.env import Env
from guard.scenarios.kinds import heard, say
from guard.scenarios.nodes import speak
from guard.scenarios.registry import concurrent, legal


async def cancel_in_a_node(env: Env, graph: Any, node: Hanging) -> None:
    if env.sync:
        # The sync face cannot cancel: its caller goes away instead.
        await env.stream(graph, say("in"), env.thread(), stream_mode="updates", leave_after=1)
    else:
        await env.cancelled(graph, say("in"), env.thread(), node.begun.wait())


class Hanging:
    """A node that hangs the first time it runs on a loop."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, state: Any) -> Any:
        if not self.begun.is_set():
            self.begun.set()
            await asyncio.Event().wait()
        return say(f"h{heard(state)}")


def hanging(env: Env) -> tuple[Any, Hanging]:
    node = Hanging()
    middle = ("h", speak("h") if env.sync else node.__call__)
    return env.chain(("a", speak("a")), middle, ("b", speak("b"))), node


@legal
async def async_task_cancelled(env: Env) -> None:
    graph, node = hanging(env)
    await cancel_in_a_node(env, graph, node)
    await env.settled()
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@concurrent
async def async_cancel_immediate_reinvoke(env: Env) -> None:
    graph, node = hanging(env)
    await cancel_in_a_node(env, graph, node)
    await env.invoke(graph, say("more"), env.thread())
    await env.settled()
