"""What the installed LangGraph does, asked of its behaviour: no version number decides a test."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import _checkpoint as checkpoints

from support.conversation import conversation, question, thread

ZEROS = "0000000-0000-0000-0000-000000000000"

__all__ = ["accepts_task_path", "asks_for_histories_of_new_threads", "keeps_parallel_order"]


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
