"""What cannot work is refused at once, by an error that names the culprit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import ShallowPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncShallowPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import (
    CachedHistorySaver,
    DeerflowSaverError,
    HistoryCache,
    InvalidConfigError,
    MemoryHistoryCache,
    UnsupportedSaverError,
)
from support.conversation import thread, turns


class DeferredCheckpointSaver(InMemorySaver):
    """Named as the wrapper that buffers checkpoints."""


class Derived(DeferredCheckpointSaver):
    """A subclass of it buffers too."""


NOT_SAVERS: dict[str, Any] = {
    "nothing": None,
    "a dict": {},
    "a connection string": "postgresql://db.example/name",
    "a context manager": SqliteSaver.from_conn_string(":memory:"),
    "a class": InMemorySaver,
    "the base class": BaseCheckpointSaver,
    "a bool": True,
}


@pytest.mark.parametrize("name", NOT_SAVERS)
def test_only_saver_instances_are_wrapped(name: str) -> None:
    with pytest.raises(UnsupportedSaverError, match="wraps a BaseCheckpointSaver instance"):
        CachedHistorySaver(NOT_SAVERS[name])


def test_a_refusal_is_a_type_error_and_one_of_ours() -> None:
    with pytest.raises(TypeError):
        CachedHistorySaver(object())
    with pytest.raises(DeerflowSaverError):
        CachedHistorySaver(object())


def test_wrapping_twice_is_refused() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    with pytest.raises(UnsupportedSaverError, match="wrapped already"):
        CachedHistorySaver(saver)


def test_wrapping_a_subclass_of_the_wrapper_is_refused() -> None:
    class Ours(CachedHistorySaver):
        """A user's own wrapper."""

    with pytest.raises(UnsupportedSaverError, match="wrapped already"):
        CachedHistorySaver(Ours(InMemorySaver()))
    with pytest.raises(UnsupportedSaverError, match="wrapped already"):
        Ours(CachedHistorySaver(InMemorySaver()))


@pytest.mark.filterwarnings("ignore:ShallowPostgresSaver is deprecated:DeprecationWarning")
def test_a_shallow_saver_is_refused(postgres_database: str) -> None:
    with ShallowPostgresSaver.from_conn_string(postgres_database) as raw:
        raw.setup()
        with pytest.raises(UnsupportedSaverError, match="keeps only the newest checkpoint"):
            CachedHistorySaver(raw)


@pytest.mark.filterwarnings("ignore:AsyncShallowPostgresSaver is deprecated:DeprecationWarning")
async def test_an_async_shallow_saver_is_refused(postgres_database: str) -> None:
    async with AsyncShallowPostgresSaver.from_conn_string(postgres_database) as raw:
        with pytest.raises(UnsupportedSaverError, match="keeps only the newest checkpoint"):
            CachedHistorySaver(raw)


@pytest.mark.parametrize("wrapped", [DeferredCheckpointSaver, Derived])
def test_a_buffering_saver_is_refused(wrapped: type[InMemorySaver]) -> None:
    with pytest.raises(UnsupportedSaverError, match="buffers checkpoints"):
        CachedHistorySaver(wrapped())


class Incomplete:
    """A cache that cannot forget."""

    enabled = True

    def chain(self, key: Any, make: Any) -> Any: ...

    def chains(self, prefix: str, thread_id: str) -> Any: ...

    def measure(self, key: Any, chain: Any) -> None: ...

    def usage(self) -> dict[str, int]: ...


@pytest.mark.parametrize(
    "cache",
    [
        pytest.param({}, id="dict"),
        pytest.param(1024, id="budget"),
        pytest.param("redis://db.example", id="url"),
        pytest.param(Incomplete(), id="incomplete"),
        pytest.param(MemoryHistoryCache, id="class"),
    ],
)
def test_a_cache_without_the_protocol_is_refused_by_name(cache: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"^cache must be a HistoryCache"):
        CachedHistorySaver(InMemorySaver(), cache)


def test_an_address_for_a_cache_is_told_how_it_is_opened() -> None:
    address: Any = "redis://:hush@db.example"
    with pytest.raises(InvalidConfigError, match=r"got a str.*open_cache\(address\)$") as caught:
        CachedHistorySaver(InMemorySaver(), address)
    assert "hush" not in str(caught.value)


def test_the_missing_method_of_a_cache_is_named() -> None:
    assert not isinstance(Incomplete(), HistoryCache)
    cache: Any = Incomplete()
    with pytest.raises(InvalidConfigError, match="without 'purge_thread'"):
        CachedHistorySaver(InMemorySaver(), cache)


@pytest.mark.parametrize("isolation", ["unsafe", "", "SAFE", 1, True, ["safe"], {}], ids=repr)
def test_an_unknown_isolation_is_refused_by_name(isolation: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"^isolation must be one of safe, copy, shared"):
        CachedHistorySaver(InMemorySaver(), isolation=isolation)


@pytest.mark.parametrize("prefix", [1, b"database", ["database"]], ids=repr)
def test_a_prefix_that_is_no_string_is_refused_by_name(prefix: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"^key_prefix must be a str"):
        CachedHistorySaver(InMemorySaver(), key_prefix=prefix)


@pytest.mark.parametrize("hook", [1, "print", {}], ids=repr)
def test_a_hook_that_cannot_be_called_is_refused_by_name(hook: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"^on_event must be callable"):
        CachedHistorySaver(InMemorySaver(), on_event=hook)


@pytest.mark.parametrize("budget", [1.5, "64MiB", True, [1]], ids=repr)
def test_a_budget_that_is_no_integer_is_refused_by_name(budget: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"^max_bytes must be an int"):
        MemoryHistoryCache(budget)


@pytest.mark.parametrize("budget", [-1, -(1 << 40)])
def test_a_negative_budget_is_refused_by_name(budget: int) -> None:
    with pytest.raises(InvalidConfigError, match=r"^max_bytes must be >= 0"):
        MemoryHistoryCache(budget)


@pytest.mark.parametrize(
    "wrong", [{}, {"configurable": {}}, {"metadata": {"thread_id": "1"}}], ids=repr
)
def test_every_call_without_a_thread_names_what_is_missing(wrong: Any) -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    place = thread()
    calls = {
        "get_tuple": lambda: saver.get_tuple(wrong),
        "put": lambda: saver.put(wrong, empty_checkpoint(), {}, {}),
        "put_writes": lambda: saver.put_writes(wrong, [("log", 1)], "task"),
        "get_delta_channel_history": lambda: saver.get_delta_channel_history(
            config=wrong, channels=["log"]
        ),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidConfigError, match=rf"^{name}: config must name a thread"):
            call()
        with pytest.raises(KeyError):  # what LangGraph's own savers raise
            call()
    assert saver.get_tuple(place) is None


@pytest.mark.parametrize("wrong", [{}, {"configurable": {}}], ids=repr)
async def test_every_async_call_without_a_thread_names_what_is_missing(wrong: Any) -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    calls = {
        "aget_tuple": lambda: saver.aget_tuple(wrong),
        "aput": lambda: saver.aput(wrong, empty_checkpoint(), {}, {}),
        "aput_writes": lambda: saver.aput_writes(wrong, [("log", 1)], "task"),
        "get_delta_channel_history": lambda: saver.aget_delta_channel_history(
            config=wrong, channels=["log"]
        ),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidConfigError, match=rf"^{name}: config must name a thread"):
            await call()


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "channels", ["notes", b"notes", 7, None, [1, 2], ["notes", 1], [None], [b"notes"]], ids=repr
)
def test_channels_that_are_no_names_are_refused_by_name(channels: Any, warm: bool) -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    config: Any = thread("thread", checkpoint_id="1")
    if warm:
        for _ in turns(saver, thread()):
            config = saver.get_tuple(thread()).config
    for _ in range(2):
        with pytest.raises(InvalidConfigError, match=r"^channels must"):
            saver.get_delta_channel_history(config=config, channels=channels)
        with pytest.raises(InvalidConfigError, match=r"^channels must"):
            asyncio.run(saver.aget_delta_channel_history(config=config, channels=channels))


def test_a_refused_read_is_a_value_error_with_a_plain_message() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    with pytest.raises(ValueError, match="channels") as caught:
        saver.get_delta_channel_history(config=thread(), channels="notes")
    assert not str(caught.value).startswith(("'", '"'))


@pytest.mark.parametrize("channels", [["a", "b"], ("b", "a"), {"a": 1}, [], ["a", "a"]], ids=repr)
def test_any_collection_of_names_is_answered_as_the_saver_would(channels: Any) -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    config = raw.put(thread("1", checkpoint_ns=""), empty_checkpoint(), {}, {})
    raw.put_writes(config, [("a", 1), ("b", 2)], "task")
    head = raw.put(config, empty_checkpoint(), {}, {})
    for _ in range(2):
        found = saver.get_delta_channel_history(config=head, channels=channels)
        assert found == raw.get_delta_channel_history(config=head, channels=channels)
        assert list(found) == list(dict.fromkeys(channels))


def test_a_call_the_saver_would_not_take_is_refused_too() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    raw: Any = saver.inner
    for call in (
        lambda it: it.get_delta_channel_history(thread(), ["a"]),
        lambda it: it.get_delta_channel_history(config=thread()),
        lambda it: it.get_delta_channel_history(channels=["a"]),
        lambda it: it.get_delta_channel_history(config=thread(), channels=["a"], limit=1),
        lambda it: it.put(thread("1", checkpoint_ns="")),
        lambda it: it.put_writes(thread("1", checkpoint_id="1")),
        lambda it: it.delete_thread(),
    ):
        for target in (raw, saver):
            with pytest.raises(TypeError):
                call(target)


def test_calls_by_keyword_work_as_by_position() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    config = thread("1", checkpoint_ns="")
    config = saver.put(config=config, checkpoint=empty_checkpoint(), metadata={}, new_versions={})
    saver.put_writes(config=config, writes=[("a", 1)], task_id="task", task_path="path")
    head = saver.put(config, checkpoint=empty_checkpoint(), metadata={}, new_versions={})
    assert saver.get_tuple(config=head).parent_config == config
    assert [row.config for row in saver.list(config=thread("1"), limit=1)] == [head]
    for _ in range(2):
        found = saver.get_delta_channel_history(config=head, channels=["a"])
        assert found == {"a": {"writes": [("task", "a", 1)]}}
    saver.delete_thread(thread_id="1")
    found = saver.get_delta_channel_history(config=head, channels=["a"])
    assert found == {"a": {"writes": []}}
