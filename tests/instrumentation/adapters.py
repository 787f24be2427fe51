"""What the adapters' tests share: a service's worth of events, and metrics read back."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import (
    CachedHistorySaver,
    CacheInfo,
    GuardEvent,
    HistoryEvent,
    NonHeadWriteError,
)
from support.conversation import conversation, question, thread

REFUSAL = GuardEvent("refused", "put", "fork", "secret-thread", "", "1", "2", ("messages",))
HIT = HistoryEvent("hit", "messages", "snapshot", 7, 0, 0.00002)
WALK = HistoryEvent("walk", "messages", "root", 120, 1, 0.02)
PAST = HistoryEvent("walk", "messages", "missing", 6000, 1, 0.5, past_bound=True)


class Sharing:
    """A saver, as far as metrics are concerned, whose cache is shared and lost its store twice."""

    def cache_info(self) -> CacheInfo:
        return CacheInfo(shared=5, outages=2)


def served(hook: Any) -> CachedHistorySaver:
    """A wrapper that has walked, composed or hit, and refused one write, all told to `hook`."""
    saver = CachedHistorySaver(InMemorySaver(), on_event=hook)
    graph, config = conversation(saver), thread("secret-thread")
    for number in range(2):
        graph.invoke(question(number), config)
    for _ in range(3):
        graph.get_state(config)
    older = list(graph.get_state_history(config))[2].config
    with pytest.raises(NonHeadWriteError):
        graph.update_state(older, question(9), as_node="__start__")
    return saver
