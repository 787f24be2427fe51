"""langgraph-tenancy stacked with the cache, the cache under it and over it.

It puts the tenant in front of the thread id on the way down. Under it the cache sees
threads of different names; over it, one thread id that means another thread per tenant.
"""

from __future__ import annotations

from typing import Any, Protocol

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph_tenancy import TenantRequiredError, TenantScopedCheckpointer, UnscopedAccessError

from deerflow_saver import CachedHistorySaver
from deerflow_saver.guard.policy import Policy
from support.conversation import (
    aassert_reads_equal,
    assert_reads_equal,
    at,
    aturns,
    conversation,
    question,
    thread,
    turns,
)

Saver = BaseCheckpointSaver[Any]


class Stack(Protocol):
    """Puts the two wrappers round a saver: what to use, and the one that caches."""

    def __call__(
        self, memory: InMemorySaver, guard: Policy = "refuse"
    ) -> tuple[Saver, CachedHistorySaver]: ...


TENANTS = ("acme", "globex")


def under(memory: InMemorySaver, guard: Policy = "refuse") -> tuple[Saver, CachedHistorySaver]:
    cached = CachedHistorySaver(memory, guard=guard)
    return TenantScopedCheckpointer(cached), cached  # type: ignore[arg-type]


def over(memory: InMemorySaver, guard: Policy = "refuse") -> tuple[Saver, CachedHistorySaver]:
    cached = CachedHistorySaver(TenantScopedCheckpointer(memory), guard=guard)
    return cached, cached  # type: ignore[return-value]


both_ways = pytest.mark.parametrize("stack", [under, over])


def of(tenant: str) -> RunnableConfig:
    """The one thread id that all tenants use."""
    return thread("thread", tenant_id=tenant)


@both_ways
def test_reads_equal_for_every_tenant_of_one_thread_id(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, cached = stack(memory)
    raw = TenantScopedCheckpointer(memory)
    for _ in zip(*(turns(saver, of(tenant)) for tenant in TENANTS), strict=True):
        for tenant in TENANTS:
            assert_reads_equal(saver, raw, of(tenant))
    assert cached.cache_info().errors == 0


@both_ways
async def test_async_reads_equal_for_every_tenant_of_one_thread_id(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, cached = stack(memory)
    raw = TenantScopedCheckpointer(memory)
    for tenant in TENANTS:
        async for _ in aturns(saver, of(tenant), count=2):
            await aassert_reads_equal(saver, raw, of(tenant))
    for tenant in TENANTS:
        await aassert_reads_equal(saver, raw, of(tenant))
    assert cached.cache_info().errors == 0


@both_ways
def test_a_tenant_never_sees_anothers_checkpoint_of_the_same_id(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, cached = stack(memory)
    raw = TenantScopedCheckpointer(memory)
    ids = [str(uuid6()) for _ in range(2)]
    for tenant in TENANTS:
        _store(raw, tenant, ids)
    for _ in range(3):
        for tenant in TENANTS:
            config = thread("thread", tenant_id=tenant, checkpoint_ns="", checkpoint_id=ids[1])
            found = saver.get_delta_channel_history(config=config, channels=["log"])
            seed = _DeltaSnapshot([tenant])
            assert found == {"log": {"seed": seed, "writes": [("task", "log", tenant)]}}
    assert cached.cache_info().hits > 0


def _store(saver: Saver, tenant: str, ids: list[str]) -> None:
    """Two checkpoints: a value and a write, both naming the tenant, and the head."""
    config = thread("thread", tenant_id=tenant, checkpoint_ns="")
    for checkpoint_id in ids:
        checkpoint: Any = {**empty_checkpoint(), "id": checkpoint_id}
        if checkpoint_id == ids[0]:
            checkpoint["channel_values"] = {"log": _DeltaSnapshot([tenant])}
            checkpoint["channel_versions"] = {"log": "1"}
        saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
        config = thread("thread", tenant_id=tenant, checkpoint_ns="", checkpoint_id=checkpoint_id)
        if checkpoint_id == ids[0]:
            saver.put_writes(config, [("log", tenant)], "task")


@both_ways
def test_a_missing_tenant_is_refused_warm_and_cold(stack: Stack) -> None:
    saver, _ = stack(InMemorySaver())
    for _ in range(2):
        with pytest.raises(TenantRequiredError):
            saver.get_delta_channel_history(
                config=thread("thread", checkpoint_id="1"), channels=["messages"]
            )
        with pytest.raises(TenantRequiredError):
            saver.get_tuple(thread())
        for _ in turns(saver, of("acme"), count=1):
            pass
        head = conversation(saver).get_state(of("acme")).config["configurable"]["checkpoint_id"]
        with pytest.raises(TenantRequiredError):
            saver.get_delta_channel_history(
                config=thread("thread", checkpoint_id=head), channels=["messages"]
            )


@both_ways
def test_deleting_without_a_tenant_is_refused_and_deletes_nothing(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, _ = stack(memory)
    for _ in turns(saver, of("acme"), count=1):
        pass
    with pytest.raises(UnscopedAccessError):
        saver.delete_thread("thread")
    assert_reads_equal(saver, TenantScopedCheckpointer(memory), of("acme"))


def test_a_tenants_deletion_reaches_the_cache_under_it() -> None:
    memory = InMemorySaver()
    saver, _ = under(memory)
    assert isinstance(saver, TenantScopedCheckpointer)
    for tenant in TENANTS:
        for _ in turns(saver, of(tenant), count=2):
            pass
    head = conversation(saver).get_state(of("acme")).config
    saver.for_tenant("acme").delete_thread("thread")
    history = saver.get_delta_channel_history(config=head, channels=["messages"])
    assert history == {"messages": {"writes": []}}
    assert_reads_equal(saver, TenantScopedCheckpointer(memory), of("globex"))


def test_turns_hit_the_cache_under_a_tenancy() -> None:
    saver, cached = under(InMemorySaver())
    for _ in turns(saver, of("acme")):
        pass
    before = cached.cache_info()
    head = conversation(saver).get_state(of("acme")).config
    conversation(saver).get_state(head)
    after = cached.cache_info()
    assert after.hits - before.hits == 2
    assert after.misses == before.misses


def test_a_repeated_read_of_a_snapshot_hits_the_cache_over_a_tenancy() -> None:
    saver, cached = over(InMemorySaver())
    for _ in turns(saver, of("acme")):
        pass
    row = next(row for row in saver.list(of("acme")) if row.metadata["step"] == 4)
    config = at(row, of("acme"))
    first = saver.get_delta_channel_history(config=config, channels=["messages"])
    assert "seed" in first["messages"]
    before = cached.cache_info()
    assert saver.get_delta_channel_history(config=config, channels=["messages"]) == first
    after = cached.cache_info()
    assert after.hits - before.hits == 1
    assert after.misses == before.misses


@both_ways
def test_a_fork_reads_equal(stack: Stack) -> None:
    memory = InMemorySaver()
    saver, _ = stack(memory, guard="off")
    graph = conversation(saver)
    for _ in turns(saver, of("acme"), count=2):
        pass
    earlier = list(saver.list(of("acme")))[3]
    graph.update_state(at(earlier, of("acme")), question(7), as_node="answer")
    assert_reads_equal(saver, TenantScopedCheckpointer(memory), of("acme"))
