"""Legal: entrypoints and tasks."""

from __future__ import annotations

from typing import Any

from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt

from guard.scenarios.env import Env
from guard.scenarios.kinds import heard, say
from guard.scenarios.registry import legal
from guard.scenarios.subgraphs import inner


def _flow(env: Env, *, asks: bool = False) -> Any:
    @task
    def double(number: int) -> int:
        return number * 2

    if env.sync:

        @entrypoint(checkpointer=env.saver)
        def flow(number: int, *, previous: Any = None) -> Any:
            doubled = [double(number + more) for more in range(3)]
            total = sum(future.result() for future in doubled)
            answer = interrupt("go on?") if asks else ""
            return [*(previous or []), f"{total}{answer}"]

        return flow

    @entrypoint(checkpointer=env.saver)
    async def aflow(number: int, *, previous: Any = None) -> Any:
        doubled = [double(number + more) for more in range(3)]
        total = sum([await future for future in doubled])
        answer = interrupt("go on?") if asks else ""
        return [*(previous or []), f"{total}{answer}"]

    return aflow


@legal
async def func_api(env: Env) -> None:
    for number in range(3):
        await env.invoke(_flow(env), number, env.thread())


@legal
async def func_api_interrupt(env: Env) -> None:
    flow = _flow(env, asks=True)
    for number in range(2):
        await env.invoke(flow, number, env.thread())
        await env.invoke(flow, Command(resume="yes"), env.thread())


@legal
async def func_api_calls_graph(env: Env) -> None:
    sub = inner(env)

    async def body(text: str, previous: Any) -> Any:
        result = await env.nested(sub, say(text, *(previous or [])))
        return [*(previous or []), f"sub{heard(result)}"]

    if env.sync:
        call = env.node(body)

        @entrypoint(checkpointer=env.saver)
        def flow(text: str, *, previous: Any = None) -> Any:
            return call(text, previous)
    else:

        @entrypoint(checkpointer=env.saver)
        async def flow(text: str, *, previous: Any = None) -> Any:
            return await body(text, previous)

    for turn in range(2):
        await env.invoke(flow, f"in{turn}", env.thread())
