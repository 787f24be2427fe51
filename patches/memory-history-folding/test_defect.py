"""A thread that turned from full to delta: the value stored as full, then two delta writes."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver


def put(
    saver: InMemorySaver, parent: RunnableConfig, version: str, values: dict[str, Any]
) -> RunnableConfig:
    checkpoint = empty_checkpoint()
    checkpoint["channel_versions"] = {"log": version}
    checkpoint["channel_values"] = values
    return saver.put(parent, checkpoint, {}, {"log": version} if values else {})


def test_the_writes_under_a_plain_seed_are_replayed() -> None:
    saver = InMemorySaver()
    thread: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    full = put(saver, thread, "1", {"log": ["a"]})
    saver.put_writes(full, [("log", ["b"])], "first task")
    delta = put(saver, full, "2", {})
    saver.put_writes(delta, [("log", ["c"])], "second task")
    head = put(saver, delta, "3", {})

    history = saver.get_delta_channel_history(config=head, channels=["log"])["log"]

    assert history["seed"] == ["a"]
    assert [value for _, _, value in history["writes"]] == [["b"], ["c"]]
