"""What the installed LangGraph does, asked of its behaviour: no version number decides a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from inspect import signature
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.pregel import _checkpoint as checkpoints
from langgraph.types import Send, StateUpdate

from deerflow_saver import fixes
from deerflow_saver.channel_mode.marker import shows_delta
from deerflow_saver.fixes import Presence
from support.conversation import State, conversation, question, thread

__all__ = [
    "accepts_task_path",
    "asks_for_histories_of_new_threads",
    "gives_up_after_a_failed_save",
    "keeps_every_update",
    "keeps_parallel_order",
    "loses_updates",
    "reloads_what_ran",
    "stores_checkpoints_first",
    "updates_show_delta",
    "without_order",
]

_MANY = 12
"""Tasks whose random ids hardly come in their order by chance."""
ZEROS = "0000000-0000-0000-0000-000000000000"


def accepts_task_path(put_writes: Callable[..., Any]) -> bool:
    """Whether LangGraph passes `task_path` to this method.

    It asks `put_writes_accepts_task_path`; releases without that function ask the same in
    `PregelLoop.__init__`.
    """
    asked = getattr(checkpoints, "put_writes_accepts_task_path", None)
    if asked is not None:
        return bool(asked(put_writes))
    return signature(put_writes).parameters.get("task_path") is not None


def keeps_parallel_order(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether parallel writes are replayed by task path, as runs apply them, or by random ids."""
    place = thread("who is first?", checkpoint_ns="")
    config = saver.put(place, empty_checkpoint(), {}, {})
    for path, task_id in (("~1", "f"), ("~2", "e")):
        saver.put_writes(
            config, [("log", path)], task_id * 8 + "-0000-0000-0000-000000000000", path
        )
    child = saver.put(config, empty_checkpoint(), {}, {})
    history = saver.get_delta_channel_history(config=child, channels=["log"])
    saver.delete_thread("who is first?")
    return [value for _, _, value in history["log"]["writes"]] == ["~1", "~2"]


def _apart(run: Coroutine[Any, Any, Any]) -> None:
    """Run on a loop of its own, whether or not the caller is on one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run).result()


def _speak(state: State) -> State:
    return {"notes": state["notes"]}


@cache
def keeps_every_update() -> bool:
    """Whether all updates of one superstep of `bulk_update_state` are stored."""
    builder = StateGraph(State)
    for name in "ab":
        builder.add_node(name, _speak)
        builder.add_edge(START, name)
    graph: Any = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"notes": []}, thread())
    graph.bulk_update_state(thread(), [[StateUpdate({"notes": [name]}, name) for name in "ab"]])
    return bool(graph.get_state(thread()).values["notes"][-2:] == ["a", "b"])


@cache
def gives_up_after_a_failed_save() -> bool:
    """Whether a run puts no checkpoint upon one whose own put failed or was cancelled."""
    put: list[str] = []

    class Failing(InMemorySaver):
        async def aput(self, config: Any, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
            put.append(checkpoint["id"])
            if len(put) == 1:
                message = "full"
                raise OSError(message)
            return await super().aput(config, checkpoint, *args, **kwargs)

    with contextlib.suppress(OSError):
        run = conversation(Failing()).ainvoke(question(0), thread(), durability="async")
        _apart(run)
    return len(put) == 1


@cache
def stores_checkpoints_first() -> bool:
    """Whether a run's writes on a checkpoint are stored after the checkpoint itself.

    Where they are not, they may be stored before a guard can know that the checkpoint is
    refused.
    """
    early = []

    class Watched(InMemorySaver):
        async def aput_writes(self, config: Any, *args: Any, **kwargs: Any) -> None:
            early.append(self.get_tuple(config) is None)
            await super().aput_writes(config, *args, **kwargs)

    _apart(conversation(Watched()).ainvoke(question(0), thread()))
    return not any(early)


@cache
def reloads_what_ran() -> bool:
    """Whether a run with parallel tasks reads back as it ended, also if it saved at its end only.

    Where it does not, two runs of one flow differ by the random ids of their tasks. Asked of
    SQLite, for which no fix is put in place of the saver's own code.
    """
    builder = StateGraph(State)
    builder.add_node("speak", _speak)
    builder.add_conditional_edges(
        START, lambda _: [Send("speak", {"notes": [n]}) for n in range(_MANY)]
    )
    with SqliteSaver.from_conn_string(":memory:") as saver:
        graph: Any = builder.compile(checkpointer=saver)
        ended = graph.invoke({"notes": []}, thread(), durability="exit")
        return bool(graph.get_state(thread()).values["notes"] == ended["notes"])


def loses_updates() -> bool:
    """Whether LangGraph, patched as it is now, files an update in a place that is taken."""
    rows = fixes.status(["finished-task-update", "bulk-updates-lost"])
    return any(row.presence not in {Presence.ABSENT, Presence.FIXED} for row in rows)


@cache
def updates_show_delta() -> bool:
    """Whether a thread that was only updated shows that its channels are delta ones."""
    saver = InMemorySaver()
    conversation(saver).update_state(thread(), {"notes": ["first"]}, as_node="audit")
    return shows_delta(saver.get_tuple(thread()))


@cache
def asks_for_histories_of_new_threads() -> bool:
    """Whether LangGraph asks a saver for the delta histories of a thread that has none."""
    asked = []

    class Asked(InMemorySaver):
        def get_delta_channel_history(self, **arguments: Any) -> Any:
            asked.append(arguments)
            return super().get_delta_channel_history(**arguments)

    conversation(Asked()).invoke(question(0), thread())
    return bool(asked)


def without_order(told: Any) -> Any:
    """What a flow tells, for releases where the order of parallel writes is chance."""
    if isinstance(told, Mapping):
        return {key: without_order(value) for key, value in told.items()}
    if isinstance(told, str) or not isinstance(told, Iterable):
        return told
    return sorted(map(without_order, told), key=repr)
