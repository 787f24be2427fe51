"""A run that is rolled back leaves the thread as it found it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import capture_rollback_point, restore
from support.modes import thread

from support.rollback_threads import AFTER, HEADS, RUN, TURN, Stopping, cancel, shown, turn

WRAPS: dict[str, Callable[[Any], Any]] = {
    "refusing": CachedHistorySaver,
    "raw": lambda saver: saver,
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("where", ["before", "during", "after"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("mode", ["full", "delta"])
def test_matrix(mode: str, head: str, where: str, durability: Any, wrap: Any) -> None:
    for given in (TURN, *[AFTER[h] for h in [head] if h in AFTER]):
        control = Stopping(mode, InMemorySaver())
        HEADS[head](control, durability=durability)
        saver = InMemorySaver()
        agent = Stopping(mode, wrap(saver))
        HEADS[head](agent, durability=durability)
        before = shown(agent)
        point = capture_rollback_point(agent.accessor, thread())
        cancel(agent, given, where, durability=durability)
        assert restore(agent.accessor, point, thread_id="1", run_id=RUN)
        assert shown(agent) == before == shown(Stopping(mode, saver))
        assert restore(agent.accessor, point, thread_id="1", run_id=RUN)
        assert turn(agent, head) == turn(control, head)
        assert shown(agent) == shown(Stopping(mode, saver))
