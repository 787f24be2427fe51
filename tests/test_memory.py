"""The cache's accounts are honest: what it says it holds is what `tracemalloc` finds."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver, MemoryHistoryCache

Saver = BaseCheckpointSaver[Any]
Values = Callable[[int], Any]
CHANNEL = "messages"
WRITES = 200


def plain(number: int) -> Any:
    return [HumanMessage(f"{number} ".ljust(128, "x"), id=f"message-{number}")]


def with_tool_calls(number: int) -> Any:
    calls = [
        {
            "name": "search",
            "args": {"query": f"topic {number}", "page": page},
            "id": f"{number}.{page}",
        }
        for page in (1, 2)
    ]
    return [AIMessage(f"{number} ".ljust(128, "x"), id=f"message-{number}", tool_calls=calls)]


def long(number: int) -> Any:
    return [HumanMessage(f"{number} ".ljust(2048, "x"), id=f"message-{number}")]


def a_dict(number: int) -> Any:
    return {f"file-{number}": {"content": f"{number} ".ljust(200, "x"), "lines": [number, 3.5]}}


def not_ascii(number: int) -> Any:
    return [HumanMessage(f"{number} ".ljust(128, "語"), id=f"message-{number}")]


PAYLOADS = (plain, with_tool_calls, long, a_dict, not_ascii)
every_payload = pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.__name__)


@pytest.fixture
def raw(tmp_path: Any) -> Iterator[Saver]:
    """A saver whose own memory is SQLite's, which `tracemalloc` does not see."""
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as saver:
        yield saver


def converse(
    saver: Saver,
    thread_id: str,
    values: Sequence[Any],
    seed: Any = None,
    after: RunnableConfig | None = None,
) -> RunnableConfig:
    """One checkpoint and one write a value; the config of the head that has them all.

    `after` is the head of a conversation that goes on; its own first write is the first value.
    """
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    if after is not None:
        saver.put_writes(after, [(CHANNEL, values[0])], f"{thread_id}-{uuid4()}")
        config, values = after, values[1:]
    for step, value in enumerate([*values, None]):
        checkpoint = empty_checkpoint()
        versions = {CHANNEL: f"{step + 1:032}"}
        checkpoint["channel_versions"] = dict(versions)
        if seed is not None and step == 0:
            checkpoint["channel_values"] = {CHANNEL: _DeltaSnapshot(seed)}
        config = saver.put(
            config,
            checkpoint,
            {
                "source": "loop",
                "step": step,
                "counters_since_delta_snapshot": {CHANNEL: (step, step)},
            },
            versions,
        )
        if step < len(values):
            saver.put_writes(config, [(CHANNEL, value)], f"{thread_id}-task-{step:08}")
    return config


def read(saver: Saver, config: RunnableConfig) -> Any:
    return saver.get_delta_channel_history(config=config, channels=[CHANNEL])[CHANNEL]


def held(make: Callable[[], Any]) -> tuple[Any, int]:
    """What `make` gives, and the bytes it keeps alive; a first call fills all other caches."""
    make()
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        gc.collect()
        return kept, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def assert_honest(make: Callable[[], CachedHistorySaver]) -> None:
    wrapped, traced = held(make)
    assert wrapped.cache_info().bytes == pytest.approx(traced, rel=0.2)


def numbered(payload: Values, count: int = WRITES) -> list[Any]:
    return [payload(number) for number in range(count)]


@every_payload
@pytest.mark.parametrize("reads", [1, 3])
def test_the_accounts_are_honest_after_reads(raw: Saver, payload: Values, reads: int) -> None:
    config = converse(raw, "thread", numbered(payload))

    def make() -> CachedHistorySaver:
        wrapped = CachedHistorySaver(raw)
        for _ in range(reads):
            read(wrapped, config)
        return wrapped

    assert_honest(make)


@every_payload
def test_the_accounts_are_honest_for_a_seed(raw: Saver, payload: Values) -> None:
    seed: Any = {} if payload is a_dict else []
    for value in numbered(payload):
        seed = seed | value if payload is a_dict else seed + value
    config = converse(raw, "thread", [payload(0)], seed)

    def make() -> CachedHistorySaver:
        wrapped = CachedHistorySaver(raw)
        for _ in range(3):
            assert "seed" in read(wrapped, config)
        return wrapped

    assert_honest(make)


@every_payload
@pytest.mark.parametrize("read_between", [False, True], ids=["unread", "read"])
def test_the_accounts_are_honest_after_learned_writes(
    raw: Saver, payload: Values, read_between: bool
) -> None:
    numbers = iter(range(10))

    def make() -> CachedHistorySaver:
        wrapped = CachedHistorySaver(raw)
        config = converse(wrapped, f"thread-{next(numbers)}", numbered(payload))
        if read_between:
            for _ in range(2):
                assert len(read(wrapped, config)["writes"]) == WRITES
            assert wrapped.cache_info().walks <= 1  # the first checkpoint taught the channel
        return wrapped

    assert_honest(make)


@pytest.mark.parametrize("isolation", ["copy", "shared"])
def test_the_accounts_are_honest_in_the_other_isolations(raw: Saver, isolation: Any) -> None:
    config = converse(raw, "thread", numbered(plain))

    def make() -> CachedHistorySaver:
        wrapped = CachedHistorySaver(raw, isolation=isolation)
        for _ in range(2):
            read(wrapped, config)
        return wrapped

    assert_honest(make)


@pytest.mark.parametrize("learned", [False, True], ids=["read", "learned"])
def test_a_thread_of_a_thousand_writes_takes_little_more_than_its_messages(
    raw: Saver, learned: bool
) -> None:
    values = [(with_tool_calls if n % 5 == 1 else plain)(n) for n in range(1000)]
    config = converse(raw, "thread", values)
    numbers = iter(range(10))

    def make() -> CachedHistorySaver:
        wrapped = CachedHistorySaver(raw)
        head = converse(wrapped, f"thread-{next(numbers)}", values) if learned else config
        for _ in range(3):
            read(wrapped, head)
        return wrapped

    _, decoded = held(lambda: read(raw, config))
    _, cached = held(make)
    assert cached <= 2.5 * decoded


@pytest.mark.parametrize("writes", [1, 3, 10])
@pytest.mark.parametrize("way", ["learned", "read", "learned and read"])
def test_the_accounts_are_honest_for_many_short_threads(raw: Saver, writes: int, way: str) -> None:
    values = numbered(plain, writes)
    found = [converse(raw, f"found-{n}", values) for n in range(100)]

    def make() -> CachedHistorySaver:
        wrapped = CachedHistorySaver(raw, guard="off")
        configs = found
        if "learned" in way:
            converse(wrapped, str(uuid4()), values)  # tells that the channel is delta
            configs = [converse(wrapped, str(uuid4()), values) for _ in found]
        for config in configs if "read" in way else ():
            read(wrapped, config)
        return wrapped

    assert_honest(make)


def test_many_threads_never_exceed_the_budget(raw: Saver) -> None:
    configs = [converse(raw, f"thread-{n}", numbered(plain, 40)) for n in range(40)]
    cache = MemoryHistoryCache(max_bytes=1_000_000)
    wrapped = CachedHistorySaver(raw, cache)

    def visit(number: int) -> list[int]:
        seen = []
        for config in configs[number:] + configs[:number]:
            read(wrapped, config)
            seen.append(wrapped.cache_info().bytes)
        return seen

    with ThreadPoolExecutor(4) as pool:
        fills = [fill for seen in pool.map(visit, (0, 10, 20, 30)) for fill in seen]
    assert max(fills) <= 1_000_000
    assert max(fills) > 500_000
    assert wrapped.cache_info().evictions > 0


def test_the_budget_is_what_is_really_held(raw: Saver) -> None:
    configs = [converse(raw, f"thread-{n}", numbered(plain, 100)) for n in range(40)]

    def make() -> CachedHistorySaver:
        wrapped = CachedHistorySaver(raw, MemoryHistoryCache(max_bytes=2_000_000))
        for config in configs + configs[::-1]:
            read(wrapped, config)
        return wrapped

    wrapped, traced = held(make)
    assert wrapped.cache_info().evictions > 0
    assert traced <= 1.2 * 2_000_000


def test_a_busy_thread_does_not_evict_all_others(raw: Saver) -> None:
    quiet = [converse(raw, f"quiet-{n}", numbered(plain, 20)) for n in range(4)]
    wrapped = CachedHistorySaver(raw, MemoryHistoryCache(max_bytes=1_500_000))
    for config in quiet:
        read(wrapped, config)
    busy = converse(raw, "busy", numbered(long, 400))
    for turn in range(3):
        assert len(read(wrapped, busy)["writes"]) == 400 + 50 * turn
        busy = converse(wrapped, "busy", numbered(long, 50), after=busy)
    hits = wrapped.cache_info().hits
    for config in quiet:
        read(wrapped, config)
    assert wrapped.cache_info().hits == hits + len(quiet)


def test_a_deleted_thread_leaves_nothing_behind(raw: Saver) -> None:
    config = converse(raw, "thread", numbered(long))
    wrapped = CachedHistorySaver(raw)
    empty = wrapped.cache_info().bytes
    read(wrapped, config)
    read(wrapped, config)
    assert wrapped.cache_info().bytes > WRITES * 2048
    wrapped.delete_thread("thread")
    assert wrapped.cache_info().bytes == empty == 0
