"""Legal: graphs in graphs, with the parent's saver, with their own memory, or with none."""

from __future__ import annotations

from typing import Any

from langgraph.graph import END, START
from langgraph.types import Command, Send

from guard.scenarios.env import Env
from guard.scenarios.kinds import heard, say
from guard.scenarios.nodes import ask, speak
from guard.scenarios.registry import legal


def inner(env: Env, checkpointer: Any = None, name: str = "s") -> Any:
    return env.chain(
        (f"{name}1", speak(name)), (f"{name}2", speak(name)), checkpointer=checkpointer
    )


def asking_inner(env: Env, checkpointer: Any = None) -> Any:
    nodes = (("s1", speak("s")), ("ask", ask("ask")), ("s2", speak("s")))
    return env.chain(*nodes, checkpointer=checkpointer)


def outer(env: Env, sub: Any, **options: Any) -> Any:
    return env.chain(("a", speak("a")), ("sub", sub), ("b", speak("b")), **options)


async def turns(env: Env, graph: Any, count: int = 2) -> None:
    for turn in range(count):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


async def answered_turns(env: Env, graph: Any, count: int = 2) -> None:
    for turn in range(count):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
        await env.invoke(graph, Command(resume="yes"), env.thread())


def calling(env: Env, sub: Any, times: int = 1, config: Any = None) -> Any:
    async def call(state: Any) -> Any:
        said = []
        for number in range(times):
            result = await env.nested(sub, say(f"call{number}"), config)
            said.append(f"sub{heard(result)}")
        return say(*said)

    return env.chain(("a", speak("a")), ("call", env.node(call)), ("b", speak("b")))


@legal
async def sub_inherit(env: Env) -> None:
    await turns(env, outer(env, inner(env)))


@legal
async def sub_inherit_interrupt(env: Env) -> None:
    await answered_turns(env, outer(env, asking_inner(env)))


@legal
async def sub_true(env: Env) -> None:
    await turns(env, outer(env, inner(env, checkpointer=True)), count=3)


@legal
async def sub_true_interrupt(env: Env) -> None:
    await answered_turns(env, outer(env, asking_inner(env, checkpointer=True)))


@legal
async def sub_false(env: Env) -> None:
    graph = outer(env, inner(env, checkpointer=False))
    if env.durability == "sync":
        # LangGraph asks a subgraph without a saver for the save it would wait for.
        await env.raises(AttributeError, lambda: env.invoke(graph, say("in"), env.thread()))
        return
    await turns(env, graph)


@legal
async def sub_called_in_node(env: Env) -> None:
    await turns(env, calling(env, inner(env)))


@legal
async def sub_called_twice_in_node(env: Env) -> None:
    await turns(env, calling(env, inner(env), times=2))


@legal
async def sub_true_called_in_node(env: Env) -> None:
    await turns(env, calling(env, inner(env, checkpointer=True)), count=3)


@legal
async def sub_interrupt_in_called_node(env: Env) -> None:
    await answered_turns(env, calling(env, asking_inner(env)))


@legal
async def sub_own_saver_thread(env: Env) -> None:
    sub = inner(env, checkpointer=env.saver)
    own = env.thread("own", checkpoint_ns="")
    await turns(env, calling(env, sub, config=own))
    env.trace.append((await env.state(sub, env.thread("own"))).values)


@legal
async def sub_nested_two_levels(env: Env) -> None:
    middle = env.chain(("m", speak("m")), ("deep", inner(env)), checkpointer=None)
    await turns(env, outer(env, middle))


@legal
async def sub_parallel_inherit(env: Env) -> None:
    sides = ("one", inner(env, name="o")), ("two", inner(env, name="t"))
    await turns(env, env.fan(*sides, then=speak("then")))


@legal
async def sub_send_inherit(env: Env) -> None:
    builder = env.builder()
    builder.add_node("a", speak("a"))
    builder.add_node("sub", inner(env))
    builder.add_edge(START, "a")
    builder.add_conditional_edges(
        "a", lambda s: [Send("sub", say(f"send{number}")) for number in range(3)], ["sub"]
    )
    builder.add_edge("sub", END)
    await turns(env, env.compile(builder))


@legal
async def sub_command_parent(env: Env) -> None:
    def leave(state: Any) -> Any:
        return Command(graph=Command.PARENT, goto="b", update=say(f"left{heard(state)}"))

    sub = env.chain(("s", speak("s")), ("leave", leave), checkpointer=None)
    builder = env.builder()
    builder.add_node("sub", sub, destinations=("b",))
    builder.add_node("b", speak("b"))
    builder.add_edge(START, "sub")
    builder.add_edge("b", END)
    await turns(env, env.compile(builder))


@legal
async def sub_update_state_in_ns(env: Env) -> None:
    graph = outer(env, asking_inner(env))
    await env.invoke(graph, say("in"), env.thread())
    paused = (await env.state(graph, env.thread(), subgraphs=True)).tasks[0].state
    await env.update(graph, paused.config, say("u"), as_node="s1")
    await env.invoke(graph, Command(resume="yes"), env.thread())
    if (await env.state(graph, env.thread())).next:
        await env.invoke(graph, Command(resume="yes"), env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def sub_loop_revisit(env: Env) -> None:
    builder = env.builder()
    builder.add_node("sub", inner(env))
    builder.add_node("b", speak("b"))
    builder.add_edge(START, "sub")
    builder.add_edge("sub", "b")
    builder.add_conditional_edges("b", lambda s: "sub" if heard(s) < 12 else END)
    graph = env.compile(builder)
    await turns(env, graph)
