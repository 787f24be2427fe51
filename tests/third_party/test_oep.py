"""langgraph-oep, which reports on every checkpoint, stacked with the cache both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_oep import OEPCheckpointSaver
from langgraph_tenancy import TenantScopedCheckpointer

from deerflow_saver import CachedHistorySaver
from support.conversation import (
    aassert_reads_equal,
    assert_reads_equal,
    aturns,
    conversation,
    thread,
    turns,
)

Saver = BaseCheckpointSaver[Any]
Stack = Callable[[InMemorySaver], tuple[Saver, CachedHistorySaver]]


class Sink:
    """Where reports go."""

    def __init__(self) -> None:
        self.packets: list[dict[str, Any]] = []

    def write(self, packet: dict[str, Any]) -> None:
        self.packets.append(packet)


def under(memory: InMemorySaver) -> tuple[Saver, CachedHistorySaver]:
    cached = CachedHistorySaver(memory)
    return OEPCheckpointSaver(cached, Sink(), on_error="raise"), cached  # type: ignore[arg-type]


def over(memory: InMemorySaver) -> tuple[Saver, CachedHistorySaver]:
    cached = CachedHistorySaver(OEPCheckpointSaver(memory, Sink(), on_error="raise"))
    return cached, cached  # type: ignore[return-value]


both_ways = pytest.mark.parametrize("stack", [under, over])


@both_ways
def test_reads_equal_after_every_turn(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, cached = stack(memory)
    for _ in turns(saver, thread()):
        assert_reads_equal(saver, memory, thread())
    assert cached.cache_info().errors == 0


@both_ways
async def test_async_reads_equal_after_every_turn(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, cached = stack(memory)
    async for _ in aturns(saver, thread()):
        await aassert_reads_equal(saver, memory, thread())
    assert cached.cache_info().errors == 0


@both_ways
def test_a_deleted_thread_starts_anew(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, _ = stack(memory)
    for _ in turns(saver, thread(), count=2):
        pass
    head = conversation(saver).get_state(thread()).config
    saver.delete_thread("thread")
    assert saver.get_delta_channel_history(config=head, channels=["messages"]) == {
        "messages": {"writes": []}
    }
    for _ in turns(saver, thread(), count=1):
        assert_reads_equal(saver, memory, thread())


def test_a_turn_hits_the_cache_under_it() -> None:
    saver, cached = under(InMemorySaver())
    for _ in turns(saver, thread()):
        pass
    before = cached.cache_info()
    conversation(saver).get_state(thread())
    after = cached.cache_info()
    assert after.hits - before.hits == 1
    assert after.misses == before.misses


def test_three_wrappers_deep_every_tenant_reads_its_own() -> None:
    memory = InMemorySaver()
    raw = TenantScopedCheckpointer(OEPCheckpointSaver(memory, Sink()))
    saver = CachedHistorySaver(TenantScopedCheckpointer(OEPCheckpointSaver(memory, Sink())))
    for tenant in ("acme", "globex"):
        for _ in turns(saver, thread(tenant_id=tenant), count=2):
            pass
    for tenant in ("acme", "globex"):
        assert_reads_equal(saver, raw, thread(tenant_id=tenant))
