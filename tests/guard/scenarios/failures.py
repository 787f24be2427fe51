"""Legal: nodes that fail, are retried, are handled, or are given up."""

from __future__ import annotations

import threading
from typing import Any

from langgraph.errors import NodeError
from langgraph.graph import END, START
from langgraph.types import Command, RetryPolicy

from guard.scenarios.env import Env
from guard.scenarios.kinds import heard, say
from guard.scenarios.nodes import BrokenError, fail_once, speak
from guard.scenarios.registry import legal

AT_ONCE = RetryPolicy(
    initial_interval=0.0, max_interval=0.0, jitter=False, max_attempts=4, retry_on=BrokenError
)


async def fails_beside_a(env: Env) -> Any:
    """Run a step in which `f` fails once the write of `a` beside it has been taken note of."""
    noted = threading.Event()
    failing = fail_once("f", after=noted)
    graph = env.fan(("a", speak("a")), ("f", failing), then=speak("then"))
    options: dict[str, Any] = {"stream_mode": ["updates", "custom"], "on_chunk": noted.set}
    await env.raises(BrokenError, lambda: env.stream(graph, say("in"), env.thread(), **options))
    return graph


@legal
async def error_retry_none(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("f", fail_once("f")), ("b", speak("b")))
    await env.raises(BrokenError, lambda: env.invoke(graph, say("in"), env.thread()))
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def error_parallel_retry_none(env: Env) -> None:
    graph = await fails_beside_a(env)
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def error_parallel_then_input(env: Env) -> None:
    graph = await fails_beside_a(env)
    await env.invoke(graph, say("more"), env.thread())


@legal
async def error_first_node(env: Env) -> None:
    graph = env.chain(("f", fail_once("f")), ("b", speak("b")))
    await env.raises(BrokenError, lambda: env.invoke(graph, say("in"), env.thread()))
    await env.invoke(graph, say("more"), env.thread())


@legal
async def retry_policy(env: Env) -> None:
    builder = env.builder()
    builder.add_node("a", speak("a"))
    builder.add_node("f", fail_once("f", failures=2), retry_policy=AT_ONCE)
    builder.add_edge(START, "a")
    builder.add_edge("a", "f")
    builder.add_edge("f", END)
    graph = env.compile(builder)
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def retry_policy_subgraph(env: Env) -> None:
    inner = env.chain(("s", speak("s")), ("f", fail_once("f", failures=2)), checkpointer=None)
    builder = env.builder()
    builder.add_node("sub", inner, retry_policy=AT_ONCE)
    builder.add_edge(START, "sub")
    builder.add_edge("sub", END)
    graph = env.compile(builder)
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def error_in_subgraph_retry_none(env: Env) -> None:
    inner = env.chain(("s", speak("s")), ("f", fail_once("f")), checkpointer=None)
    graph = env.chain(("a", speak("a")), ("sub", inner))
    await env.raises(BrokenError, lambda: env.invoke(graph, say("in"), env.thread()))
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


def _handled(env: Env, failures: int, handler: Any) -> Any:
    builder = env.builder()
    builder.add_node("f", fail_once("f", failures), error_handler=handler)
    builder.add_node("b", speak("b"))
    builder.add_edge(START, "f")
    builder.add_edge("f", "b")
    builder.add_edge("b", END)
    return env.compile(builder)


@legal
async def error_handler(env: Env) -> None:
    def handler(state: Any, error: NodeError) -> Any:
        return Command(update=say(f"handled{heard(state)}"), goto="b")

    graph = _handled(env, 1, handler)
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def error_handler_itself_fails(env: Env) -> None:
    failing = fail_once("handler")

    def handler(state: Any, error: NodeError) -> Any:
        return Command(update=failing(state), goto="b")

    graph = _handled(env, 2, handler)
    await env.raises(BrokenError, lambda: env.invoke(graph, say("in"), env.thread()))
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())
