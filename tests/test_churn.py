"""A long life in a short time: threads come, are read, go on and go; memory stays what it was."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver, open_cache
from deerflow_saver.guard import state

BUDGET = 128 * 1024
CHANNEL = "messages"
STEPS = 6
THREADS = 50
"""Threads of one round; the guard remembers fewer, the cache holds fewer."""
ROUNDS = 3
LEEWAY = 64 * 1024


def live(saver: CachedHistorySaver, thread_id: str, reader: CachedHistorySaver) -> None:
    """One thread's life: written in turns, read here and by another worker, deleted or left."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    for step in range(STEPS):
        checkpoint = empty_checkpoint()
        version = {CHANNEL: f"{step + 1:032}"}
        checkpoint["channel_versions"] = dict(version)
        counters = {CHANNEL: (step + 1, step + 1)}
        metadata: Any = {
            "source": "loop", "step": step - 1, "counters_since_delta_snapshot": counters,
        }  # fmt: skip
        config = saver.put(config, checkpoint, metadata, version)
        message = HumanMessage("x" * 200, id=f"{thread_id}-{step}")
        saver.put_writes(config, [(CHANNEL, [message])], f"task-{step}")
        if step % 2:
            for each in (saver, reader):
                head = each.get_tuple({"configurable": {"thread_id": thread_id}})
                assert head is not None
                history = each.get_delta_channel_history(config=head.config, channels=[CHANNEL])
                assert len(history[CHANNEL]["writes"]) == step
    if thread_id.endswith(("1", "4", "7")):
        saver.delete_thread(thread_id)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("shared", [False, True], ids=["memory", "redis"])
def test_memory_stays_what_it_was_however_many_threads_come_and_go(
    tmp_path: Path, redis_database: str, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(state, "_NAMESPACES", 32)
    monkeypatch.setattr(state, "_REFUSED", 32)

    address = f"{redis_database}?bytes={BUDGET}" if shared else f"memory://?bytes={BUDGET}"
    with SqliteSaver.from_conn_string(str(tmp_path / "c.sqlite")) as raw:
        saver, reader = (
            CachedHistorySaver(raw, open_cache(address), key_prefix="p") for _ in range(2)
        )
        tracemalloc.start()
        held = []
        for round_ in range(ROUNDS):
            for number in range(THREADS):
                live(saver, f"{round_}-{number}", reader)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert saver.cache_info().bytes <= BUDGET
        assert saver.cache_info().evictions > 0
        assert held[-1] <= held[1] + LEEWAY, held
