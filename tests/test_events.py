"""What a wrapper tells about itself: an event per channel of a read, counters, forgetting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver import CachedHistorySaver, CacheInfo, HistoryEvent, MemoryHistoryCache
from support.conversation import assert_reads_equal, conversation, question, thread, turns
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

ROOT: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
Read = Callable[..., Any]


def read(saver: Any, config: Any, *channels: str) -> Any:
    return saver.get_delta_channel_history(config=config, channels=channels)


def aread(saver: Any, config: Any, *channels: str) -> Any:
    return asyncio.run(saver.aget_delta_channel_history(config=config, channels=channels))


either_face = pytest.mark.parametrize("read", [read, aread])


def root(saver: Any, **values: Any) -> Any:
    checkpoint: Any = {**empty_checkpoint(), "channel_values": values}
    checkpoint["channel_versions"] = dict.fromkeys(values, "1")
    return saver.put(ROOT, checkpoint, {"source": "input"}, checkpoint["channel_versions"])


def step(saver: Any, parent: Any, **writes: Any) -> Any:
    saver.put_writes(parent, list(writes.items()), "task")
    return saver.put(parent, empty_checkpoint(), {"source": "loop"}, {})


def told(events: list[HistoryEvent]) -> list[tuple[Any, ...]]:
    found = [(e.channel, e.outcome, e.seed_kind, e.replay_depth, e.calls) for e in events]
    events.clear()
    return found


@either_face
def test_a_walk_and_a_hit_are_told_per_channel(read: Read) -> None:
    events: list[HistoryEvent] = []
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw, on_event=events.append)
    head = step(saver, root(saver, a=_DeltaSnapshot([1]), b=[1]), a=1, b=2, c=3)
    plain_depth = len(read(raw, head, "b")["b"]["writes"])  # some releases lose the write
    assert told(events) == []
    for outcome, calls in (("walk", 1), ("hit", 0)):
        read(saver, head, "a", "b", "c")
        assert told(events) == [
            ("a", outcome, "snapshot", 1, calls),
            ("b", outcome, "legacy_plain", plain_depth, calls),
            ("c", outcome, "root", 1, calls),
        ]


@either_face
def test_catching_up_is_told_with_its_calls(read: Read) -> None:
    events: list[HistoryEvent] = []
    raw = Rows()
    saver: Any = CachedHistorySaver(raw, on_event=events.append)
    config = root(raw, a=_DeltaSnapshot([1]))
    for _ in range(3):
        config = step(raw, config, a=1)
    read(saver, config, "a")
    (first,) = told(events)
    assert first[:4] == ("a", "composed", "snapshot", 3)
    assert first[4] >= 3
    config = step(raw, step(raw, config, a=1), a=1)
    read(saver, config, "a")
    ((_, outcome, _, depth, calls),) = told(events)
    assert (outcome, depth) == ("composed", 5)
    assert calls < first[4]
    assert saver.cache_info().composed == 2
    assert saver.cache_info().fetches == first[4] + calls


@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_a_read_past_the_cache_is_told(budget: int) -> None:
    events: list[HistoryEvent] = []
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw, MemoryHistoryCache(budget), on_event=events.append)
    head = step(saver, root(saver), a=1)
    asked = head if budget == 0 else ROOT
    depth = len(read(raw, asked, "a")["a"]["writes"])  # some releases need an id to find any
    read(saver, asked, "a")
    assert told(events) == [("a", "bypass", "root", depth, 1)]


def deep(saver: Any, parent: Any, **counters: tuple[int, int]) -> Any:
    """A head whose metadata counts (updates, supersteps) since each channel's last snapshot."""
    metadata = {"source": "loop", "counters_since_delta_snapshot": counters}
    return saver.put(parent, empty_checkpoint(), metadata, {})


@either_face
@pytest.mark.parametrize("learnt", ["as it was put", "as it was read"])
def test_a_walk_past_the_bound_is_told_of_the_channel_it_is_about(read: Read, learnt: str) -> None:
    events: list[HistoryEvent] = []
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw, on_event=events.append, guard="off")
    parent = step(raw, root(raw), late=1, due=1)
    read(saver, {"configurable": {**parent["configurable"], "thread_id": "2"}}, "late", "due")
    events.clear()  # both are known as delta channels from now on
    head = deep(saver if learnt == "as it was put" else raw, parent, late=(1, 5001), due=(1, 5000))
    if learnt == "as it was read":
        saver.get_tuple(head)
    for _ in range(2):
        read(saver, head, "late", "due")
    assert [(event.channel, event.outcome, event.past_bound) for event in events] == [
        ("late", "walk", True),
        ("due", "walk", False),
        ("late", "hit", False),
        ("due", "hit", False),
    ]


class Rows(InMemorySaver):
    """A saver of its own, whose history is the base class's walk over its rows."""

    get_delta_channel_history = BaseCheckpointSaver.get_delta_channel_history
    aget_delta_channel_history = BaseCheckpointSaver.aget_delta_channel_history

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return super().get_tuple(config)


@either_face
def test_a_line_that_ends_at_a_missing_row_is_told(read: Read) -> None:
    events: list[HistoryEvent] = []
    raw = Rows()
    first = root(raw)
    gone = step(raw, first, a=1, b=1)
    seeded = step(raw, gone, a=1)
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"b": _DeltaSnapshot([1])}}
    checkpoint["channel_versions"] = {"b": "2"}
    head = step(raw, raw.put(seeded, checkpoint, {"source": "loop"}, {"b": "2"}), a=1, b=1)
    del raw.storage["1"][""][gone["configurable"]["checkpoint_id"]]
    saver: Any = CachedHistorySaver(raw, on_event=events.append)
    assert read(saver, head, "a", "b") == read(raw, head, "a", "b")
    assert [(event.channel, event.seed_kind) for event in events] == [
        ("a", "missing"),
        ("b", "snapshot"),
    ]
    events.clear()
    read(saver, first, "a")
    assert [event.seed_kind for event in events] == ["root"]


def test_a_row_that_a_storage_saver_lacks_is_told_where_it_is_looked_for() -> None:
    events: list[HistoryEvent] = []
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw, on_event=events.append)
    known = _at_step(raw, root(raw), 70)
    read(saver, known, "a")
    saver.get_tuple(known)
    events.clear()
    gone = _at_step(raw, known, 71)
    head = _at_step(raw, gone, 72)
    del raw.storage["1"][""][gone["configurable"]["checkpoint_id"]]
    saver.get_tuple(head)
    assert read(saver, head, "a") == read(raw, head, "a")
    assert [(event.outcome, event.seed_kind) for event in events] == [("walk", "missing")]


def _at_step(saver: Any, parent: Any, number: int) -> Any:
    saver.put_writes(parent, [("a", number)], "task")
    counters = {"a": (number, number)}
    metadata = {"source": "loop", "step": number, "counters_since_delta_snapshot": counters}
    return saver.put(parent, empty_checkpoint(), metadata, {})


class Shapeless(InMemorySaver):
    """Answers histories in a shape of its own."""

    def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        return dict.fromkeys(channels, "nothing LangGraph knows")


@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_a_history_that_cannot_be_told_is_answered_all_the_same(budget: int) -> None:
    events: list[HistoryEvent] = []
    raw = Shapeless()
    cache = MemoryHistoryCache(budget)
    saver: Any = CachedHistorySaver(raw, cache, on_event=events.append)
    plain: Any = CachedHistorySaver(raw, MemoryHistoryCache(budget))
    head = step(raw, root(raw), a=1)
    for _ in range(2):
        assert read(saver, head, "a") == read(plain, head, "a") == read(raw, head, "a")
    assert saver.cache_info().errors > 0
    assert events == []


def test_the_share_of_hits_counts_every_read() -> None:
    assert CacheInfo().hit_ratio == 0.0
    assert CacheInfo(hits=6, misses=3, bypasses=1).hit_ratio == 0.6


def test_an_event_is_frozen_and_takes_its_time() -> None:
    events: list[HistoryEvent] = []
    saver: Any = CachedHistorySaver(InMemorySaver(), on_event=events.append)
    read(saver, step(saver, root(saver), a=1), "a")
    (event,) = events
    assert event.seconds > 0
    with pytest.raises(FrozenInstanceError):
        event.channel = "b"  # type: ignore[misc]


@either_face
def test_a_raising_hook_is_logged_and_harmless(
    read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(event: HistoryEvent) -> None:
        message = f"no room for {event.channel}"
        raise RuntimeError(message)

    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw, on_event=hook)
    head = step(saver, root(saver), a=1, b=2)
    with caplog.at_level(logging.ERROR, "deerflow_saver"):
        for _ in range(2):
            assert read(saver, head, "a", "b") == read(raw, head, "a", "b")
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 4
    assert "no room for a" in caplog.text
    assert saver.cache_info().hits == 1
    assert saver.cache_info().errors == 0


def test_a_hook_may_read_through_the_wrapper_it_reports_on() -> None:
    seen: list[Any] = []
    saver: Any = None

    def hook(event: HistoryEvent) -> None:
        if len(seen) < 3:
            seen.append(saver.cache_info().hits)
            read(saver, head, event.channel)

    saver = CachedHistorySaver(InMemorySaver(), on_event=hook)
    head = step(saver, root(saver), a=1)
    assert read(saver, head, "a") == {"a": {"writes": [("task", "a", 1)]}}
    assert seen == [0, 1, 2]


@every_sync_case
def test_counters_agree_with_the_events(case: SaverCase, storage: Storage) -> None:
    events: list[HistoryEvent] = []
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw, on_event=events.append)
        for _ in turns(saver, thread()):
            pass
        for _ in range(2):
            for row in list(saver.list(thread())):
                read(saver, row.config, "notes")
                read(saver, row.config, "messages", "notes", "facts")
        info = saver.cache_info()
        # Every read, LangGraph's own too, asks for this channel
        outcomes = [event.outcome for event in events if event.channel == "notes"]
        assert outcomes.count("hit") == info.hits > 0
        assert outcomes.count("walk") == info.walks
        assert outcomes.count("composed") == info.composed
        assert info.misses == info.walks + info.composed > 0
        assert info.learned > 0
        assert info.entries == 1
        assert 0 < info.bytes <= info.max_bytes
        assert (info.errors, info.evictions, info.forgets) == (0, 0, 0)


@every_async_case
async def test_counters_count_async_reads(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        graph = conversation(saver)
        await graph.ainvoke(question(0), thread())
        for _ in range(2):  # the second proves that no ancestor is missing
            await graph.aget_state(thread())
        before = saver.cache_info()
        await graph.aget_state(thread())
        after = saver.cache_info()
        assert after.hits - before.hits == 1
        assert after.misses == before.misses


def test_the_counters_have_names_for_logs() -> None:
    info = CachedHistorySaver(InMemorySaver()).cache_info()
    assert info == CacheInfo(max_bytes=64 * 1024 * 1024)
    assert info.as_dict() == {
        **{field.name: 0 for field in fields(CacheInfo)},
        "max_bytes": 64 * 1024 * 1024,
    }


def test_a_disabled_cache_counts_bypasses_and_keeps_nothing() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw, MemoryHistoryCache(0))
    for _ in turns(saver, thread()):
        assert_reads_equal(saver, raw, thread())
    info = saver.cache_info()
    assert info.bypasses > 0
    assert (info.hits, info.misses, info.entries, info.bytes) == (0, 0, 0, 0)


def test_evictions_are_counted() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw, MemoryHistoryCache(60_000))
    for number in range(4):
        for _ in turns(saver, thread(str(number)), count=1):
            assert_reads_equal(saver, raw, thread(str(number)))
    info = saver.cache_info()
    assert info.evictions > 0
    assert info.bytes <= 60_000
    assert info.entries < 4


def _counts(saver: Any, config: Any) -> tuple[int, int]:
    """Hits and misses of one read of a config."""
    before = saver.cache_info()
    read(saver, config, "a")
    after = saver.cache_info()
    return after.hits - before.hits, after.misses - before.misses


def test_purging_a_thread_forgets_it_alone() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    mine, other = (_thread(saver, name) for name in ("mine", "other"))
    assert _counts(saver, mine) == _counts(saver, other) == (1, 0)
    saver.purge_thread("mine")
    assert saver.cache_info().entries == 1
    assert saver.cache_info().forgets == 1
    assert _counts(saver, mine) == (0, 1)
    assert _counts(saver, other) == (1, 0)


async def test_purging_works_on_the_async_face() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    mine = _thread(saver, "mine")
    await saver.apurge_thread("mine")
    assert saver.cache_info().entries == 0
    assert _counts(saver, mine) == (0, 1)


def test_purging_shows_rows_that_changed_behind_the_savers_back() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    head = _thread(saver, "mine")
    place = head["configurable"]
    parent = raw.get_tuple(head).parent_config  # type: ignore[union-attr]
    key = (place["thread_id"], "", parent["configurable"]["checkpoint_id"])  # type: ignore[index]
    raw.writes[key].clear()
    saver.purge_thread("mine")
    assert read(saver, head, "a") == read(raw, head, "a") == {"a": {"writes": []}}


def test_purging_an_unknown_thread_does_nothing() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    mine = _thread(saver, "mine")
    for name in ("", "mine*", "m", "MINE", "unknown"):
        saver.purge_thread(name)
    assert _counts(saver, mine) == (1, 0)


def test_clearing_forgets_every_thread_of_this_database_alone() -> None:
    cache = MemoryHistoryCache()
    saver: Any = CachedHistorySaver(InMemorySaver(), cache)
    other: Any = CachedHistorySaver(InMemorySaver(), cache)
    mine = [_thread(saver, name) for name in ("one", "two")]
    theirs = _thread(other, "one")
    assert cache.usage()["entries"] == 3
    saver.cache_clear()
    assert cache.usage()["entries"] == 1
    assert [_counts(saver, config) for config in mine] == [(0, 1), (0, 1)]
    assert _counts(other, theirs) == (1, 0)
    assert saver.cache_info().forgets == 1
    assert other.cache_info().forgets == 0


def test_deleting_a_thread_is_counted_as_forgetting() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    head = _thread(saver, "mine")
    saver.delete_thread("mine")
    assert saver.cache_info().forgets >= 1
    assert read(saver, head, "a") == {"a": {"writes": []}}


def _thread(saver: Any, name: str) -> Any:
    """The head of a new thread whose history was read once."""
    place: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
    parent = saver.put(place, empty_checkpoint(), {"source": "input"}, {})
    head = step(saver, parent, a=1)
    read(saver, head, "a")
    return head
