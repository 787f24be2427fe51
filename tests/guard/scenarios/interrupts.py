"""Legal: runs that stop and go on, with answers, with updates, or with something else instead."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command

from guard.scenarios.env import Env
from guard.scenarios.kinds import say
from guard.scenarios.nodes import ask, speak
from guard.scenarios.registry import legal


def asking(env: Env, times: int = 1) -> Any:
    return env.chain(("a", speak("a")), ("ask", ask("ask", times)), ("b", speak("b")))


def asking_beside(env: Env) -> Any:
    return env.fan(("ask", ask("ask")), ("side", speak("side")), then=speak("then"))


def asking_twice(env: Env) -> Any:
    return env.fan(("one", ask("one")), ("two", ask("two")), then=speak("then"))


@legal
async def interrupt_resume(env: Env) -> None:
    graph = asking(env)
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
        await env.invoke(graph, Command(resume="yes"), env.thread())


@legal
async def interrupt_resume_explicit_head(env: Env) -> None:
    graph = asking(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, Command(resume="yes"), await env.head(graph, env.thread()))
    await env.invoke(graph, say("more"), env.thread())


@legal
async def interrupt_resume_update(env: Env) -> None:
    graph = asking(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, Command(resume="yes", update=say("u")), env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def interrupt_reinvoke_none(env: Env) -> None:
    graph = asking(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, Command(resume="yes"), env.thread())


@legal
async def interrupt_then_new_input(env: Env) -> None:
    graph = asking(env)
    for turn in range(3):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
    await env.invoke(graph, Command(resume="yes"), env.thread())


@legal
async def interrupt_update_state_resume(env: Env) -> None:
    graph = asking(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), say("u"), as_node="a")
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, Command(resume="yes"), env.thread())


@legal
async def interrupt_parallel_branch(env: Env) -> None:
    graph = asking_beside(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, Command(resume="yes"), env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def interrupt_parallel_then_input(env: Env) -> None:
    graph = asking_beside(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, say("more"), env.thread())
    await env.invoke(graph, Command(resume="yes"), env.thread())


@legal
async def interrupts_several_map(env: Env) -> None:
    graph = asking_twice(env)
    await env.invoke(graph, say("in"), env.thread())
    pending = (await env.state(graph, env.thread())).interrupts
    answers = {found.id: f"to {found.value}" for found in pending}
    await env.invoke(graph, Command(resume=answers), env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def interrupts_several_one_by_one(env: Env) -> None:
    graph = asking_twice(env)
    await env.invoke(graph, say("in"), env.thread())
    answered: set[str] = set()  # some releases go on showing them
    while True:
        pending = (await env.state(graph, env.thread())).interrupts
        asked = {found.id: str(found.value) for found in pending if found.id not in answered}
        if not asked:
            break
        first = min(asked, key=lambda name: asked[name])
        await env.invoke(graph, Command(resume={first: f"to {asked[first]}"}), env.thread())
        answered.add(first)
    await env.invoke(graph, say("more"), env.thread())


@legal
async def interrupt_twice_in_node(env: Env) -> None:
    graph = asking(env, times=2)
    await env.invoke(graph, say("in"), env.thread())
    for answer in ("yes", "no"):
        await env.invoke(graph, Command(resume=answer), env.thread())


def _breaking(env: Env, **where: Any) -> Any:
    return env.chain(("a", speak("a")), ("b", speak("b")), ("c", speak("c")), **where)


@legal
async def static_before(env: Env) -> None:
    graph = _breaking(env, interrupt_before=["b"])
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
        await env.invoke(graph, None, env.thread())


@legal
async def static_after(env: Env) -> None:
    graph = _breaking(env, interrupt_after=["a", "b"])
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, None, env.thread())


@legal
async def static_update_resume(env: Env) -> None:
    graph = _breaking(env, interrupt_before=["b"])
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), say("u"))
    await env.invoke(graph, None, env.thread())


@legal
async def static_explicit_head_none(env: Env) -> None:
    graph = _breaking(env, interrupt_before=["b", "c"])
    await env.invoke(graph, say("in"), env.thread())
    for _ in range(2):
        await env.invoke(graph, None, await env.head(graph, env.thread()))


@legal
async def update_returned_config_none(env: Env) -> None:
    graph = _breaking(env, interrupt_before=["b"])
    await env.invoke(graph, say("in"), env.thread())
    updated = await env.update(graph, env.thread(), say("u"), as_node="a")
    await env.invoke(graph, None, updated)
    await env.invoke(graph, None, env.thread())


@legal
async def update_pending_head(env: Env) -> None:
    graph = asking_beside(env)
    await env.invoke(graph, say("in"), env.thread())
    await env.update(graph, env.thread(), say("u"), as_node="ask")
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())
