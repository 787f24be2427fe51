"""Writes are learnt from the bytes the saver stores, and the saver notices nothing of it."""

from __future__ import annotations

import gc
import random
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver._taping import run, tape_for
from support.ciphers import Rotation
from support.savers import Storage, every_async_case, every_sync_case

with_and_without_guard = pytest.mark.parametrize("guard", ["off", "refuse"])


class Salted(JsonPlusSerializer):
    """Gives other bytes each time."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return kind, random.randbytes(4) + data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0], data[1][4:]))


class Filling(JsonPlusSerializer):
    """Gives bytearrays."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return kind, bytearray(data)  # type: ignore[return-value]


def steps(thread_id: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Calls that store two checkpoints, the first of which has a write of a delta channel."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    calls: list[tuple[str, tuple[Any, ...]]] = []
    for number in range(2):
        checkpoint = empty_checkpoint()
        counters = {"log": (number, number + 1)}
        metadata = {"step": number - 1, "counters_since_delta_snapshot": counters}
        calls.append(("put", (config, checkpoint, metadata, {})))
        names = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
        config = {"configurable": names}
        writes = [("other", "x"), ("log", [thread_id, number]), ("log", {"more": number})]
        calls.append(("put_writes", (config, writes, "task", "~path")))
    return calls


def lines(saver: Any) -> Any:
    """Two threads, the first of which tells that the channel is delta; the last config."""
    config = None
    for thread_id in ("1", "2"):
        for name, args in steps(thread_id):
            getattr(saver, name)(*args)
            config = args[0]
    return config


def written(saver: Any, config: Any) -> list[Any]:
    history = saver.get_delta_channel_history(config=config, channels=["log"])
    return [value for _, _, value in history["log"]["writes"]]


@with_and_without_guard
@every_sync_case
def test_what_every_saver_stores_is_learnt(case: Any, storage: Storage, guard: Any) -> None:
    with case.open(storage) as raw:
        saver = CachedHistorySaver(raw, guard=guard)
        config = lines(saver)
        assert written(saver, config) == written(raw, config) == [["2", 0], {"more": 0}]
        assert (saver.cache_info().learned, saver.cache_info().walks) == (4, 0)


@with_and_without_guard
@every_async_case
async def test_what_every_async_saver_stores_is_learnt(
    case: Any, storage: Storage, guard: Any
) -> None:
    async with case.aopen(storage) as raw:
        saver = CachedHistorySaver(raw, guard=guard)
        config: Any = None
        for thread_id in ("1", "2"):
            for name, args in steps(thread_id):
                await getattr(saver, f"a{name}")(*args)
                config = args[0]
        asked = {"config": config, "channels": ["log"]}
        history = await saver.aget_delta_channel_history(**asked)
        assert history == await raw.aget_delta_channel_history(**asked)
        assert (saver.cache_info().learned, saver.cache_info().walks) == (4, 0)


@with_and_without_guard
@pytest.mark.parametrize(
    "serde",
    [Salted(), Filling(), EncryptedSerializer(Rotation(), JsonPlusSerializer())],
    ids=["salted", "filling", "encrypted"],
)
def test_a_serialiser_of_any_habit_is_learnt_from(serde: SerializerProtocol, guard: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        raw = SqliteSaver(connection, serde=serde)
        saver = CachedHistorySaver(raw, guard=guard)
        config = lines(saver)
        assert written(saver, config) == written(raw, config) == [["2", 0], {"more": 0}]
        assert (saver.cache_info().learned, saver.cache_info().walks) == (4, 0)
        assert raw.serde is serde


@with_and_without_guard
def test_a_value_that_changes_while_it_is_stored_is_known_as_it_was_stored(guard: Any) -> None:
    value = ["early"]

    class Late(SqliteSaver):
        """Stores, and then somebody changes the value before the call returns."""

        def cursor(self, *args: Any, **kwargs: Any) -> Any:
            if value == ["early"] and self.changes:
                value.append("late")
            return super().cursor(*args, **kwargs)

        changes = False

    with closing(sqlite3.connect(":memory:")) as connection:
        raw = Late(connection)
        saver = CachedHistorySaver(raw, guard=guard)
        lines(saver)
        (put, last), (put_writes, (config, _, *rest)), (_, next_one), _ = steps("3")
        getattr(saver, put)(*last)
        raw.changes = True
        getattr(saver, put_writes)(config, [("log", value)], *rest)
        saver.put(*next_one)
        assert value == ["early", "late"]
        head = steps_config(next_one)
        assert written(saver, head) == written(raw, head)


def steps_config(put: tuple[Any, ...]) -> Any:
    """The config of a checkpoint that was put."""
    config, checkpoint, *_ = put
    return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}


def test_a_serialiser_of_another_shape_is_not_learnt_from() -> None:
    class Odd(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> Any:
            return [*super().dumps_typed(obj), "more"]

        def loads_typed(self, data: Any) -> Any:
            return super().loads_typed(tuple(data[:2]))

    raw = InMemorySaver(serde=Odd())
    saver = CachedHistorySaver(raw, guard="off")
    config = lines(saver)
    assert written(saver, config) == written(raw, config) == [["2", 0], {"more": 0}]
    assert saver.cache_info().learned == 0


def test_what_a_saver_sets_on_itself_while_it_stores_stays() -> None:
    class Counting(SqliteSaver):
        cursors = 0

        def cursor(self, *args: Any, **kwargs: Any) -> Any:
            self.cursors += 1
            return super().cursor(*args, **kwargs)

    with closing(sqlite3.connect(":memory:")) as one, closing(sqlite3.connect(":memory:")) as two:
        raw, inner = Counting(one), Counting(two)
        lines(raw)
        lines(CachedHistorySaver(inner, guard="off"))
        assert inner.cursors == raw.cursors > 0


@with_and_without_guard
def test_the_saver_does_not_end_with_a_call(guard: Any) -> None:
    class Ending(SqliteSaver):
        def __del__(self) -> None:
            self.conn.close()

    with closing(sqlite3.connect(":memory:")) as connection:
        inner = Ending(connection)
        saver = CachedHistorySaver(inner, guard=guard)
        config = lines(saver)
        gc.collect()
        assert written(saver, config) == written(inner, config)
        assert saver.cache_info().learned == 4


def test_a_class_that_counts_its_subclasses_is_given_none() -> None:
    heard: list[str] = []

    class Listening(InMemorySaver):
        def __init_subclass__(cls) -> None:
            heard.append(cls.__name__)
            super().__init_subclass__()

    raw = Listening()
    saver = CachedHistorySaver(raw)
    config = lines(saver)
    assert heard == []
    assert tape_for(raw) is None
    assert written(saver, config) == written(raw, config)


def test_a_call_is_taped_as_it_was_made_last() -> None:
    raw = InMemorySaver()
    tape = tape_for(raw)
    assert tape is not None
    (_, put), (name, args), *_ = steps("1")
    raw.put(*put)
    first, second = ["one"], ["two"]
    run(raw, (name, (args[0], [("log", first)], "a"), {}, tape))
    run(raw, (name, (args[0], [("log", second)], "b"), {}, tape))
    assert tape.values([("log", first)]) is None
    assert tape.values([("log", second), ("log", second)]) is None
    assert tape.values([("log", second)]) == [raw.serde.dumps_typed(second)]
