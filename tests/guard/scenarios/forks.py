"""Forks: runs and updates that begin at a checkpoint the thread has left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END
from langgraph.types import Command, Overwrite, StateSnapshot, StateUpdate, interrupt

from guard.scenarios.env import Env
from guard.scenarios.interrupts import asking
from guard.scenarios.kinds import heard, say
from guard.scenarios.nodes import speak
from guard.scenarios.registry import fork
from guard.scenarios.updates import INPUT, pair

Want = Callable[[StateSnapshot], bool]


def ended(snapshot: StateSnapshot) -> bool:
    """At the end of a turn."""
    return not snapshot.next


def before_b(snapshot: StateSnapshot) -> bool:
    """In the middle of a turn."""
    return snapshot.next == ("b",)


def begun(snapshot: StateSnapshot) -> bool:
    """Where the input of a turn was stored."""
    return (snapshot.metadata or {}).get("source") == "input"


async def older(env: Env, graph: Any, want: Want) -> Any:
    """The config of the oldest checkpoint that is `want`; durability may have kept none."""
    history = await env.history(graph, env.thread())
    wanted = [snapshot for snapshot in history[1:] if want(snapshot)]
    return (wanted or history)[-1].config


async def left(env: Env, want: Want = ended) -> tuple[Any, Any]:
    """A thread of three turns, and an older checkpoint of it."""
    graph = pair(env)
    for turn in range(3):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
    place = await older(env, graph, want)
    env.on_fork()
    return graph, place


@fork
async def update_copy_head(env: Env) -> None:
    graph = pair(env)
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
    env.on_fork()
    await env.update(graph, env.thread(), None, as_node="__copy__")


@fork
async def f_input_older(env: Env) -> None:
    graph, place = await left(env)
    await env.invoke(graph, say("fork"), place)


@fork
async def f_none_older_mid(env: Env) -> None:
    graph, place = await left(env, before_b)
    await env.invoke(graph, None, place)


@fork
async def f_none_older_input_cp(env: Env) -> None:
    graph, place = await left(env, begun)
    await env.invoke(graph, None, place)


@fork
async def f_update_older(env: Env) -> None:
    graph, place = await left(env)
    await env.update(graph, place, say("fork"), as_node="b")


@fork
async def f_update_older_then_none(env: Env) -> None:
    graph, place = await left(env)
    updated = await env.update(graph, place, say("fork"), as_node="a")
    await env.invoke(graph, None, updated)


@fork
async def f_update_older_END(env: Env) -> None:  # noqa: N802 - the node's name
    graph, place = await left(env, before_b)
    await env.update(graph, place, None, as_node=END)


@fork
async def f_update_older_INPUT(env: Env) -> None:  # noqa: N802 - the node's name
    graph, place = await left(env)
    await env.update(graph, place, say("fork"), as_node=INPUT)


@fork
async def f_update_older_copy(env: Env) -> None:
    graph, place = await left(env)
    await env.update(graph, place, None, as_node="__copy__")


@fork
async def f_bulk_older(env: Env) -> None:
    graph, place = await left(env)
    await env.bulk(graph, place, [StateUpdate(say("f0"), "a")], [StateUpdate(say("f1"), "b")])


@fork
async def f_command_update_older(env: Env) -> None:
    graph, place = await left(env, before_b)
    await env.invoke(graph, Command(update=say("fork")), place)


async def answered(env: Env, graph: Any, *answers: str) -> Any:
    """A thread that has asked and been answered; the config of where it paused."""
    await env.invoke(graph, say("in"), env.thread())
    paused = await env.head(graph, env.thread())
    for answer in answers:
        await env.invoke(graph, Command(resume=answer), env.thread())
    env.on_fork()
    return paused


@fork
async def f_resume_older(env: Env) -> None:
    graph = asking(env)
    paused = await answered(env, graph, "yes")
    await env.invoke(graph, Command(resume="late"), paused)


@fork
async def f_resume_older_reinterrupts(env: Env) -> None:
    graph = asking(env, times=2)
    paused = await answered(env, graph, "yes", "no")
    await env.invoke(graph, Command(resume="late"), paused)


@fork
async def f_resume_older_more_writes(env: Env) -> None:
    def ask_for_more(state: Any) -> Any:
        count = int(interrupt("how many?"))
        return [Command(update=say(f"more{number}")) for number in range(count)]

    graph = env.chain(("a", speak("a")), ("ask", ask_for_more), ("b", speak("b")))
    paused = await answered(env, graph, "1")
    await env.invoke(graph, Command(resume="3"), paused)


@fork
async def f_none_older_interrupt(env: Env) -> None:
    graph = asking(env)
    paused = await answered(env, graph, "yes")
    await env.invoke(graph, None, paused)


@fork
async def f_bogus_checkpoint_id(env: Env) -> None:
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    env.on_fork()
    nowhere = env.thread(checkpoint_id=str(uuid6(clock_seq=-2)))
    await env.invoke(graph, say("fork"), nowhere)


@fork
async def f_stale_tab(env: Env) -> None:
    graph = pair(env)
    await env.invoke(graph, say("in"), env.thread())
    tab = await env.head(graph, env.thread())
    await env.invoke(graph, say("from another tab"), env.thread())
    env.on_fork()
    await env.invoke(graph, say("from this tab"), tab)


@fork
async def f_fork_then_continue(env: Env) -> None:
    graph, place = await left(env)
    await env.invoke(graph, say("fork"), place)
    await env.invoke(graph, say("on the branch"), env.thread())


@fork
async def f_migrated_fork_on_full_part(env: Env) -> None:
    before = env.chain(("a", speak("a")), ("b", speak("b")), kind="full")
    after = pair(env)
    for turn in range(2):
        await env.invoke(before, say(f"full{turn}"), env.thread())
    place = await older(env, before, ended)
    for turn in range(2):
        await env.invoke(after, say(f"in{turn}"), env.thread())
    env.on_fork()
    await env.invoke(after, say("fork"), place)


@fork
async def f_rollback_fork(env: Env) -> None:
    graph, place = await left(env)
    held = (await env.state(graph, place)).values
    restored = {name: Overwrite(list(held[name])) for name in ("log", "ref")}
    at = await env.update(graph, place, restored, as_node="b")
    await env.call(env.saver, "put_writes", at, [("x", heard(held))], "restored")
