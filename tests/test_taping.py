"""Writes are learnt from the bytes the saver stores, and the saver notices nothing of it."""

from __future__ import annotations

import gc
import random
import sqlite3
import weakref
from contextlib import closing
from functools import wraps
from typing import Any, ClassVar
from uuid import UUID

import pytest
import wrapt
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver._shadows import shadows_of
from deerflow_saver._taping import Tape, run
from deerflow_saver.cli.counting import counted
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


TAKEN = [
    [("other", "x"), ("log", "own")],
    [("other", "x")],
    [("log", "own"), ("other", "x")],
]
"""What a task stored, before it writes once more."""


@every_sync_case
@pytest.mark.parametrize("first", TAKEN, ids=["behind", "alone", "before"])
@pytest.mark.parametrize("read", [False, True])
def test_a_write_whose_place_is_taken_is_not_known_as_stored(
    case: Any, storage: Storage, first: Any, read: bool
) -> None:
    with case.open(storage) as raw:
        saver = CachedHistorySaver(raw, guard="off")
        lines(saver)
        (_, put), (_, (config, *_)), (_, next_one), _ = steps("3")
        saver.put(*put)
        # The run that stored it may have been another process's
        (raw if read else saver).put_writes(config, first, "task", "~path")
        if read:
            saver.get_tuple(config)
        saver.put_writes(config, [("log", "late")], "task", "~path")
        saver.put_writes(config, [("__interrupt__", "i")], "next", "~path")
        saver.put_writes(config, [("log", "next")], "next", "~path")
        saver.put(*next_one)
        head = steps_config(next_one)
        assert written(saver, head) == written(raw, head)
        assert "late" not in written(raw, head)
        assert "next" in written(raw, head)


class Name(str):
    """An id that is a string, and something more."""

    __slots__ = ()


@every_sync_case
@pytest.mark.parametrize("kind", [Name, UUID])
def test_a_checkpoint_that_is_named_otherwise_is_the_same(
    case: Any, storage: Storage, kind: Any
) -> None:
    with case.open(storage) as raw:
        saver = CachedHistorySaver(raw, guard="off")
        lines(saver)
        (_, put), (_, (config, writes, *rest)), (_, next_one), _ = steps("3")
        saver.put(*put)
        names = config["configurable"]
        named = {"configurable": {**names, "checkpoint_id": kind(names["checkpoint_id"])}}
        saver.put_writes(named, writes, *rest)
        saver.put(*next_one)
        head = steps_config(next_one)
        assert written(saver, head) == written(raw, head)


def test_a_task_that_was_interrupted_is_learnt_from() -> None:
    raw = InMemorySaver()
    saver = CachedHistorySaver(raw, guard="off")
    lines(saver)
    (_, put), (_, (config, writes, *rest)), (_, next_one), _ = steps("3")
    saver.put(*put)
    saver.put_writes(config, [("__interrupt__", "i")], *rest)
    saver.get_tuple(config)
    saver.put_writes(config, writes, *rest)
    saver.put(*next_one)
    walks = saver.cache_info().walks
    head = steps_config(next_one)
    assert written(saver, head) == written(raw, head) == [["3", 0], {"more": 0}]
    assert (saver.cache_info().walks, saver.cache_info().fetches) == (walks, 0)


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

    class Late(sqlite3.Connection):
        """Stores, and then somebody changes the value before the call returns."""

        changes = False

        def cursor(self, *args: Any, **kwargs: Any) -> Any:
            made = super().cursor(Cursor)
            made.changes = self.changes
            return made

    class Cursor(sqlite3.Cursor):
        changes = False

        def executemany(self, *args: Any) -> Any:
            stored = super().executemany(*args)
            if self.changes:
                value.append("late")
            return stored

    with closing(sqlite3.connect(":memory:", factory=Late)) as connection:
        raw = SqliteSaver(connection)
        saver = CachedHistorySaver(raw, guard=guard)
        lines(saver)
        (put, last), (put_writes, (config, _, *rest)), (_, next_one), _ = steps("3")
        getattr(saver, put)(*last)
        connection.changes = True
        getattr(saver, put_writes)(config, [("log", value)], *rest)
        saver.put(*next_one)
        assert value == ["early", "late"]
        head = steps_config(next_one)
        assert written(saver, head) == written(raw, head) == [["early"]]
        assert saver.cache_info().learned == 5


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


def test_a_savers_class_hears_of_no_subclass() -> None:
    heard: list[str] = []

    class Register(type(InMemorySaver)):  # type: ignore[misc]
        def __init__(cls, name: str, bases: Any, parts: Any) -> None:
            heard.append(name)
            super().__init__(name, bases, parts)

    class Listening(InMemorySaver, metaclass=Register):
        def __init_subclass__(cls) -> None:
            heard.append(cls.__name__)
            super().__init_subclass__()

    saver = CachedHistorySaver(Listening(), guard="off")
    lines(saver)
    assert saver.cache_info().learned == 4
    assert heard == ["Listening"]


def test_a_tape_keeps_neither_a_saver_nor_its_class() -> None:
    class Short(InMemorySaver):
        pass

    raw = Short()
    tape = Tape(type(raw), shadows_of(type(raw)))
    (_, put), (name, args), *_ = steps("1")
    raw.put(*put)
    run(raw, (name, args, {}, tape))
    assert len(tape.values(args[1]) or ()) == len(args[1])
    gone = weakref.ref(raw)
    del raw
    assert gone() is None
    kind = weakref.ref(Short)
    del Short, tape
    gc.collect()
    assert kind() is None


class Named(SqliteSaver):
    """Asks what it is while it stores."""

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        assert type(self) is Named
        return super(type(self), self).cursor(*args, **kwargs)


class Slotted(SqliteSaver):
    """Keeps a count outside its dictionary."""

    __slots__ = ("cursors",)

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.cursors = 0

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        self.cursors += 1
        return super().cursor(*args, **kwargs)


class Setting(SqliteSaver):
    """Gives itself a serialiser while it stores."""

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        self.serde = Filling()
        return super().cursor(*args, **kwargs)


class Derived(SqliteSaver):
    """Its connection is no attribute, and no part of LangGraph's class."""

    conn: Any = property(lambda self: self.connections[0], lambda self, conn: self.keep(conn))  # type: ignore[assignment]

    def keep(self, conn: Any) -> None:
        assert type(self) is Derived
        self.connections = [conn]


class Looking(SqliteSaver):
    """Finds attributes in a way of its own."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"conn", "serde"}:
            assert type(self) is Looking
        return super().__getattribute__(name)


class Hashed(SqliteSaver, dict[str, Any]):
    """Has more than a dictionary of attributes, and names that such a call comes across."""

    __hash__ = object.__hash__


class Sealed(type(InMemorySaver)):  # type: ignore[misc]
    """A metaclass whose classes have no subclasses."""

    def __new__(cls, name: str, bases: Any, parts: Any) -> Any:
        if any(isinstance(base, Sealed) for base in bases):
            message = f"{name}: no subclass"
            raise TypeError(message)
        return super().__new__(cls, name, bases, parts)


class Last(SqliteSaver, metaclass=Sealed):
    """Could have no twin but a copy, and changes what a call comes across."""

    def __del__(self) -> None:
        assert type(self) is Last

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        assert type(self) is Last
        return super().cursor(*args, **kwargs)


@with_and_without_guard
@pytest.mark.parametrize("kind", [Named, Slotted, Setting, Derived, Looking, Hashed, Last])
def test_a_saver_of_its_own_kind_stores_as_itself(kind: Any, guard: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        raw = kind(connection)
        saver = CachedHistorySaver(raw, guard=guard)
        config = lines(saver)
        assert written(saver, config) == written(raw, config) == [["2", 0], {"more": 0}]
        assert saver.cache_info().learned == 4  # packed before and after each call


@with_and_without_guard
def test_a_patch_that_stores_other_values_is_not_learnt_from(
    monkeypatch: pytest.MonkeyPatch, guard: Any
) -> None:
    original = SqliteSaver.put_writes

    @wraps(original)
    def redacted(self: Any, config: Any, writes: Any, *args: Any) -> None:
        original(self, config, [(channel, "redacted") for channel, _ in writes], *args)

    monkeypatch.setattr(SqliteSaver, "put_writes", redacted)
    with closing(sqlite3.connect(":memory:")) as connection:
        raw = SqliteSaver(connection)
        saver = CachedHistorySaver(raw, guard=guard)
        config = lines(saver)
        assert written(saver, config) == written(raw, config) == ["redacted", "redacted"]
        assert saver.cache_info().learned == 0


@pytest.mark.parametrize("kind", [SqliteSaver, PostgresSaver, AsyncSqliteSaver, AsyncPostgresSaver])
def test_a_class_whose_calls_are_counted_is_taped(kind: Any) -> None:
    assert shadows_of(counted(kind)) is not None


@pytest.mark.parametrize("way", ["plain", "named", "proxy"])
@pytest.mark.parametrize("name", ["put_writes", "cursor"])
def test_a_patch_of_langgraphs_class_sees_the_saver_itself(
    monkeypatch: pytest.MonkeyPatch, way: str, name: str
) -> None:
    original = getattr(SqliteSaver, name)
    seen: list[Any] = []

    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(self)
        return original(self, *args, **kwargs)

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append(instance)
        return wrapped(*args, **kwargs)

    patches = {
        "plain": traced,
        "named": wraps(original)(traced),
        "proxy": wrapt.FunctionWrapper(original, around),
    }
    with closing(sqlite3.connect(":memory:")) as connection:
        assert shadows_of(SqliteSaver) is not None
        with monkeypatch.context() as patching:
            patching.setattr(SqliteSaver, name, patches[way])
            raw = SqliteSaver(connection)
            config = lines(CachedHistorySaver(raw, guard="off"))
            assert seen
            assert all(saver is raw for saver in seen)
        saver = CachedHistorySaver(SqliteSaver(connection), guard="off")
        assert written(saver, config) == [["2", 0], {"more": 0}]
        (_, put), (_, put_writes), *_ = steps("3")
        saver.put(*put)
        saver.put_writes(*put_writes)
        assert saver.cache_info().learned == 1


class Extended(SqliteSaver):
    """Changes nothing that a call comes across."""

    def __init__(self, connection: Any, more: int = 0) -> None:
        super().__init__(connection)
        self.more = more

    @property
    def doubled(self) -> int:
        return 2 * self.more


class Varied(SqliteSaver):
    """Has its serialiser from somewhere else."""

    serialisers: ClassVar[list[Any]] = [JsonPlusSerializer(), Filling()]
    serde = property(lambda _self: Varied.serialisers[0], lambda _self, _serde: None)  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Extended, Varied, SqliteSaver])
def test_what_a_class_adds_does_no_harm(kind: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        saver = CachedHistorySaver(kind(connection), guard="off")
        config = lines(saver)
        assert written(saver, config) == [["2", 0], {"more": 0}]
        assert saver.cache_info().learned == 4


@with_and_without_guard
def test_a_serialiser_that_is_replaced_during_a_call_is_the_one_that_is_used(guard: Any) -> None:
    class Replacing(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            if obj == "x":
                raw.serde = encrypted
            return super().dumps_typed(obj)

    encrypted = EncryptedSerializer(Rotation(), JsonPlusSerializer())
    raw = InMemorySaver(serde=Replacing())
    saver = CachedHistorySaver(raw, guard=guard)
    (_, put), (_, put_writes), *_ = steps("1")
    saver.put(*put)
    saver.put_writes(*put_writes)
    (own,) = raw.writes.values()
    encrypted_kinds = ["+" in kind for _, _, (kind, _), *_ in own.values()]
    assert encrypted_kinds == [False, True, True]


class Counting(EncryptedSerializer):
    """Numbers what it encrypts."""

    def __init__(self) -> None:
        super().__init__(Rotation(), JsonPlusSerializer())
        self.numbers: list[int] = []
        self.number = 0

    def __copy__(self) -> Any:
        raise AssertionError

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.number += 1
        self.numbers.append(self.number)
        return super().dumps_typed(obj)


@with_and_without_guard
def test_a_serialiser_that_counts_goes_on_counting(guard: Any) -> None:
    serde = Counting()
    with closing(sqlite3.connect(":memory:")) as connection:
        raw = SqliteSaver(connection, serde=serde)
        saver = CachedHistorySaver(raw, guard=guard)
        config = lines(saver)
        assert written(saver, config) == written(raw, config) == [["2", 0], {"more": 0}]
    assert serde.numbers == list(range(1, len(serde.numbers) + 1))


class Numbering(JsonPlusSerializer):
    """Keeps the values, and gives numbers, some of them large."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first
        self.kept: list[Any] = []

    def dumps_typed(self, obj: Any) -> Any:
        self.kept.append(obj)
        return "number", self.first + len(self.kept) - 1

    def loads_typed(self, data: Any) -> Any:
        return self.kept[data[1] - self.first]


class Once(JsonPlusSerializer):
    """Gives an answer that can be looked at once."""

    def dumps_typed(self, obj: Any) -> Any:
        return iter(super().dumps_typed(obj))


@with_and_without_guard
@pytest.mark.parametrize(
    "serde", [Numbering(0), Numbering(2**62), Once()], ids=["small", "large", "once"]
)
def test_what_is_no_bytes_is_stored_and_not_learnt(serde: Any, guard: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        raw = SqliteSaver(connection, serde=serde)
        saver = CachedHistorySaver(raw, guard=guard)
        config = lines(saver)
        assert written(saver, config) == written(raw, config) == [["2", 0], {"more": 0}]
        assert saver.cache_info().learned == 0


@with_and_without_guard
@pytest.mark.parametrize("by_name", [False, True])
def test_writes_that_can_be_read_once_are_stored(guard: Any, by_name: bool) -> None:
    raw = InMemorySaver()
    saver = CachedHistorySaver(raw, guard=guard)
    lines(saver)
    (_, put), (_, (config, writes, task, path)), (_, next_one), _ = steps("3")
    saver.put(*put)
    if by_name:
        saver.put_writes(config, writes=iter(writes), task_id=task, task_path=path)
    else:
        saver.put_writes(config, iter(writes), task, path)
    saver.put(*next_one)
    head = steps_config(next_one)
    assert written(saver, head) == written(raw, head) == [["3", 0], {"more": 0}]
    assert saver.cache_info().learned == 5


class Sparse:
    """Writes without a length that can be read more than once."""

    def __init__(self, writes: Any) -> None:
        self.writes = writes

    def __iter__(self) -> Any:
        return iter(self.writes)


def test_writes_that_change_after_they_were_stored_are_known_as_they_were() -> None:
    class Changing(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            answer = super().dumps_typed(obj)
            if obj == {"more": 0} and changes:
                changes[1] = ["other", changes[1][1]]
            return answer

    changes: list[Any] = []
    raw = InMemorySaver(serde=Changing())
    saver = CachedHistorySaver(raw, guard="off")
    lines(saver)
    (_, put), (_, (config, writes, *rest)), (_, next_one), _ = steps("3")
    saver.put(*put)
    changes[:] = writes
    saver.put_writes(config, Sparse(changes), *rest)  # type: ignore[arg-type]
    assert changes[1][0] == "other"
    saver.put(*next_one)
    head = steps_config(next_one)
    assert written(saver, head) == written(raw, head) == [["3", 0], {"more": 0}]


def test_a_call_is_taped_as_it_was_made_last() -> None:
    raw = InMemorySaver()
    tape = Tape(type(raw), shadows_of(type(raw)))
    (_, put), (name, args), *_ = steps("1")
    raw.put(*put)
    first, second = ["one"], ["two"]
    run(raw, (name, (args[0], [("log", first)], "a"), {}, tape))
    run(raw, (name, (args[0], [("log", second)], "b"), {}, tape))
    assert tape.values([("log", first)]) is None
    assert tape.values([("log", second), ("log", second)]) is None
    assert tape.values([("log", second)]) == [raw.serde.dumps_typed(second)]
