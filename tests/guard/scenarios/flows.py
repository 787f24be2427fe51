"""Legal: graphs of every shape, and nodes that steer them."""

from __future__ import annotations

from typing import Any

from langgraph.cache.memory import InMemoryCache
from langgraph.errors import GraphDrained
from langgraph.graph import END, START
from langgraph.runtime import RunControl
from langgraph.types import CachePolicy, Command, Send

from guard.scenarios.env import Env
from guard.scenarios.kinds import heard, say
from guard.scenarios.nodes import silent, speak
from guard.scenarios.registry import legal


@legal
async def fanout(env: Env) -> None:
    sides = [(f"n{number}", speak(f"n{number}")) for number in range(4)]
    graph = env.fan(*sides, ("quiet", silent("quiet")), then=speak("then"))
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def send_mapreduce(env: Env) -> None:
    builder = env.builder()
    builder.add_node("a", speak("a"))
    builder.add_node("worker", lambda s: say(f"w{s['go']}"))
    builder.add_node("reduce", speak("reduce"))
    builder.add_edge(START, "a")
    builder.add_conditional_edges(
        "a", lambda s: [Send("worker", {"go": str(number)}) for number in range(4)], ["worker"]
    )
    builder.add_edge("worker", "reduce")
    builder.add_edge("reduce", END)
    graph = env.compile(builder)
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def command_from_node(env: Env) -> None:
    def steer(state: Any) -> Any:
        return Command(update=say(f"steer{heard(state)}"), goto="b" if heard(state) < 4 else END)

    builder = env.builder()
    builder.add_node("steer", steer, destinations=("b", END))
    builder.add_node("b", speak("b"))
    builder.add_edge(START, "steer")
    builder.add_edge("b", "steer")
    graph = env.compile(builder)
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def node_returns_list_of_updates(env: Env) -> None:
    def several(state: Any) -> Any:
        return [say("first"), Command(update=say("second")), say("third"), {"x": heard(state)}]

    graph = env.chain(("several", several), ("b", speak("b")))
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def cached_node(env: Env) -> None:
    builder = env.builder()
    policy: CachePolicy[Any] = CachePolicy(key_func=lambda s: s["go"].encode())
    builder.add_node("a", lambda s: say(f"a{s['go']}"), cache_policy=policy)
    builder.add_node("b", speak("b"))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", END)
    graph = env.compile(builder, cache=InMemoryCache())
    for go in ("x", "y", "x"):
        await env.invoke(graph, {**say("in"), "go": go}, env.thread())


@legal
async def stream_closed_midway(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")), ("c", speak("c")))
    await env.stream(graph, say("in"), env.thread(), stream_mode="updates", leave_after=1)
    await env.settled()
    await env.invoke(graph, None, env.thread())
    await env.stream(graph, say("more"), env.thread(), stream_mode="updates", leave_after=2)
    await env.settled()
    await env.invoke(graph, say("last"), env.thread())


@legal
async def run_control_drain(env: Env) -> None:
    control = RunControl()

    def drain(state: Any) -> Any:
        control.request_drain("restart")
        return say(f"drain{heard(state)}")

    graph = env.chain(("a", speak("a")), ("drain", drain), ("b", speak("b")))
    await env.raises(
        GraphDrained, lambda: env.invoke(graph, say("in"), env.thread(), control=control)
    )
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def full_to_delta_migration(env: Env) -> None:
    before = env.chain(("a", speak("a")), ("b", speak("b")), kind="full")
    after = env.chain(("a", speak("a")), ("b", speak("b")))
    for turn in range(2):
        await env.invoke(before, say(f"full{turn}"), env.thread())
    for turn in range(2):
        await env.invoke(after, say(f"in{turn}"), env.thread())
