"""Legal: turn after turn, in all the ways a run can be begun at the head."""

from __future__ import annotations

from langgraph.errors import EmptyInputError, GraphRecursionError
from langgraph.graph import END, START
from langgraph.types import Command, Overwrite

from guard.scenarios.env import Env
from guard.scenarios.kinds import heard, say
from guard.scenarios.nodes import speak
from guard.scenarios.registry import legal


@legal
async def invoke_once(env: Env) -> None:
    await env.invoke(env.chain(("a", speak("a")), ("b", speak("b"))), say("in"), env.thread())


@legal
async def multi_turn(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    for turn in range(3):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def multi_turn_explicit_head(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    await env.invoke(graph, say("in"), env.thread())
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), await env.head(graph, env.thread()))


@legal
async def overwrite_input(env: Env) -> None:
    graph = env.chain(("a", speak("a")))
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, {"log": Overwrite(["new"]), "ref": Overwrite(["new"])}, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def partial_input(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    for value in ({"x": 1}, say("in"), {"x": 2}, {"log": ["only"], "ref": ["only"]}):
        await env.invoke(graph, value, env.thread())


@legal
async def command_update_head(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, Command(update=say("u")), env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def command_goto_head(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, Command(goto="b"), env.thread())
    await env.invoke(graph, Command(goto="a", update=say("u")), env.thread())


@legal
async def invoke_none_at_end(env: Env) -> None:
    graph = env.chain(("a", speak("a")))
    await env.invoke(graph, say("in"), env.thread())
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def invoke_none_fresh(env: Env) -> None:
    graph = env.chain(("a", speak("a")))
    await env.raises(EmptyInputError, lambda: env.invoke(graph, None, env.thread()))
    await env.invoke(graph, say("in"), env.thread())


@legal
async def get_state_history(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
        history = await env.history(graph, env.thread())
        env.trace.append([snapshot.values for snapshot in history])
        for snapshot in history:
            await env.state(graph, snapshot.config)


@legal
async def stream_modes(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    modes = ["values", "updates", "debug", "messages", "custom", "checkpoints", "tasks"]
    for mode in (*modes, modes):
        await env.stream(graph, say(str(mode)), env.thread(), stream_mode=mode)


@legal
async def recursion_limit(env: Env) -> None:
    builder = env.builder()
    builder.add_node("a", speak("a"))
    builder.add_edge(START, "a")
    builder.add_conditional_edges("a", lambda s: "a" if heard(s) % 5 else END)
    graph = env.compile(builder)
    few = {**env.thread(), "recursion_limit": 2}
    await env.raises(GraphRecursionError, lambda: env.invoke(graph, say("in"), few))
    await env.invoke(graph, None, env.thread())
    await env.invoke(graph, say("more"), env.thread())


@legal
async def long_thread_snapshots(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")), frequency=3)
    for turn in range(6):
        await env.invoke(graph, say(f"in{turn}"), env.thread())


@legal
async def same_run_id(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    config = {**env.thread(), "metadata": {"run_id": "run"}}
    for turn in range(3):
        await env.invoke(graph, say(f"in{turn}"), config)


@legal
async def two_threads_interleaved(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    for turn in range(3):
        for name in ("one", "two"):
            await env.invoke(graph, say(f"{name}{turn}"), env.thread(name))


@legal
async def delete_thread_reuse(env: Env) -> None:
    graph = env.chain(("a", speak("a")), ("b", speak("b")))
    for turn in range(2):
        await env.invoke(graph, say(f"in{turn}"), env.thread())
        await env.invoke(graph, say(f"more{turn}"), env.thread())
        await env.call(env.saver, "delete_thread", "thread")
    await env.invoke(graph, say("last"), env.thread())
