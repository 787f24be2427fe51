"""Runs that meet on one thread, of which a guard lets only one go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.graph import END, START
from langgraph.types import Command, Send, interrupt

from guard.scenarios.env import Env
from guard.scenarios.kinds import heard, say
from guard.scenarios.meeting import Meeting
from guard.scenarios.nodes import speak
from guard.scenarios.raw import go, pregel, put_copy, row
from guard.scenarios.registry import concurrent
from guard.scenarios.subgraphs import inner
from guard.scenarios.updates import pair


def attending(env: Env, *meetings: Meeting) -> Any:
    """A graph whose first node attends meetings."""

    def node(state: Any) -> Any:
        for meeting in meetings:
            meeting.attend()
        return say(f"a{heard(state)}")

    return env.chain(("a", node), ("b", speak("b")))


def runs(env: Env, graph: Any, make: Callable[..., Any] = say) -> list[Any]:
    """Two runs with inputs of their own."""

    def run(text: str) -> Any:
        async def turn() -> Any:
            result = await env.invoke(graph, make(text), env.thread())
            env.turns.append(text)
            return result

        return turn

    return [run("left"), run("right")]


@concurrent
async def c_two_invokes(env: Env) -> None:
    await env.invoke(pair(env), say("in"), env.thread())
    meeting = Meeting(2)
    await env.together([meeting], *runs(env, attending(env, meeting)))


@concurrent
async def c_fresh_two_invokes(env: Env) -> None:
    meeting = Meeting(2)
    await env.together([meeting], *runs(env, attending(env, meeting)))


@concurrent
async def c_pregel_raw_two_invokes(env: Env) -> None:
    await env.invoke(pregel(env), go("in"), env.thread())
    meeting = Meeting(2)
    await env.together([meeting], *runs(env, pregel(env, meeting.attend), go))


@concurrent
async def c_two_resumes(env: Env) -> None:
    meeting = Meeting(2)

    def node(state: Any) -> Any:
        answer = interrupt("which way?")
        meeting.attend()
        return say(f"went {answer}")

    graph = env.chain(("a", speak("a")), ("ask", node), ("b", speak("b")))
    await env.invoke(graph, say("in"), env.thread())
    await env.together(
        [meeting],
        lambda: env.invoke(graph, Command(resume="left"), env.thread()),
        lambda: env.invoke(graph, Command(resume="right"), env.thread()),
    )


@concurrent
async def c_update_during_run(env: Env) -> None:
    await env.invoke(pair(env), say("in"), env.thread())
    reached, done = Meeting(2), Meeting(2)
    graph = attending(env, reached, done)

    async def update() -> Any:
        await env.attend(reached)
        return await env.update(pair(env), env.thread(), say("u"), as_node="b")

    await env.together([reached, done], runs(env, graph)[0], update)


@concurrent
async def df_raw_put_during_run(env: Env) -> None:
    await env.invoke(pair(env), say("in"), env.thread())
    reached, done = Meeting(2), Meeting(2)
    graph = attending(env, reached, done)

    async def rename() -> Any:
        await env.attend(reached)
        head = await row(env, env.thread())
        return await put_copy(env, head, head.config, title="a title")

    await env.together([reached, done], runs(env, graph)[0], rename)


@concurrent
async def sub_true_send_parallel(env: Env) -> None:
    builder = env.builder()
    builder.add_node("a", speak("a"))
    builder.add_node("sub", inner(env, checkpointer=True))
    builder.add_edge(START, "a")
    builder.add_conditional_edges(
        "a", lambda s: [Send("sub", say(f"send{number}")) for number in range(3)], ["sub"]
    )
    builder.add_edge("sub", END)
    graph = env.compile(builder)
    await env.together([], lambda: env.invoke(graph, say("in"), env.thread()))
