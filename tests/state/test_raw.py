from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import channel_mode as cm
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state import (
    CheckpointStateAccessor,
    CompiledGraphCache,
    RawCheckpointReadAccessor,
    aopen_state_accessor,
    open_state_accessor,
)
from support.modes import compiled, raw_child, thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case


@every_sync_case
def test_a_full_thread_reads_as_with_its_graph(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as saver:
        graph = compiled("full", saver)
        for _ in range(2):
            graph.invoke({"log": ["in"]}, thread())
        raw = RawCheckpointReadAccessor(saver)
        states = list(graph.get_state_history(thread()))
        assert len(states) == 6
        rows = raw.history(thread())
        for row, state in zip(rows, states, strict=True):
            held = {k: v for k, v in state.values.items() if v not in ([], {}, set())}
            assert {k: v for k, v in row.values.items() if v not in ([], {}, set())} == held
            assert row.config["configurable"] == state.config["configurable"]
            assert row.created_at == state.created_at
            assert row.metadata == state.metadata
            assert row.checkpoint_exists
            assert (row.tasks, row.tasks_known, row.next) == ((), False, ())
        assert raw.get(thread()) == rows[0]
        assert raw.get(rows[3].config) == rows[3]
        assert raw.history(thread(), limit=2) == rows[:2]
        assert raw.history(thread(), limit=0) == []
        # a checkpoint id is where to begin, that checkpoint included
        assert raw.history(rows[2].config) == rows[2:]
        assert raw.history(rows[2].config, limit=2) == rows[2:4]
        assert raw.history(rows[2].config, limit=1) == rows[2:3]


@every_async_case
async def test_the_async_face_reads_the_same(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as saver:
        graph = compiled("full", saver)
        await graph.ainvoke({"log": ["in"]}, thread())
        raw = RawCheckpointReadAccessor(saver)
        rows = await raw.ahistory(thread())
        assert len(rows) == 3
        assert (await raw.aget(thread())).values["log"] == ["in", "work 1"]
        assert await raw.ahistory(rows[1].config, limit=1) == rows[1:2]


async def test_what_does_not_exist_is_said_to_not_exist() -> None:
    raw = RawCheckpointReadAccessor(InMemorySaver())
    missing = raw.get(thread())
    assert missing == await raw.aget(thread())
    assert not missing.checkpoint_exists
    assert (missing.values, missing.metadata, missing.created_at) == ({}, None, "")
    assert raw.history(thread()) == []
    assert raw.history(thread(checkpoint_id="nowhere")) == []


@pytest.mark.parametrize("kind", ["plain", "snapshot", "lost"])
@every_sync_case
def test_a_delta_thread_is_refused(case: SaverCase, storage: Storage, kind: str) -> None:
    with case.open(storage) as saver:
        graph = compiled("delta", saver, 1 if kind == "snapshot" else 50)
        for _ in range(2):
            graph.update_state(thread(), {"log": ["a"], "facts": {"a": 1}, "tags": {"a"}}, "work")
        if kind == "lost":
            raw_child(saver, thread())
        raw = RawCheckpointReadAccessor(saver)
        head = graph.get_state(thread()).config
        for read in (raw.get, raw.history):
            for config in (thread(), head):
                with pytest.raises(cm.CheckpointModeMismatchError, match="requires delta mode"):
                    read(config)


def test_there_are_no_raw_reads_in_delta_mode() -> None:
    with pytest.raises(InvalidConfigError, match="CheckpointStateAccessor"):
        RawCheckpointReadAccessor(InMemorySaver(), "delta")


async def both(factory: Any, saver: Any, **options: Any) -> list[Any]:
    return [
        open_state_accessor(factory, saver, **options),
        await aopen_state_accessor(factory, saver, **options),
    ]


def broken() -> Any:
    raise LookupError("no such model")


async def test_a_factory_that_works_gives_an_accessor() -> None:
    saver, cache = InMemorySaver(), CompiledGraphCache()
    built: list[Any] = []

    def factory() -> Any:
        built.append(compiled("delta"))
        return built[-1]

    for accessor in await both(factory, saver, mode="delta"):
        assert isinstance(accessor, CheckpointStateAccessor)
        assert (accessor.mode, accessor.checkpointer) == ("delta", saver)
    assert len(built) == 2
    for _ in range(2):
        await both(factory, saver, mode="delta", cache=cache, key="agent")
    assert len(built) == 3
    await both(lambda: compiled("full"), saver, mode="full", cache=cache, key="agent")
    assert len(cache) == 2


async def test_a_broken_factory_leaves_full_threads_readable_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saver = InMemorySaver()
    compiled("full", saver).invoke({"log": ["in"]}, thread())
    for accessor in await both(broken, saver):
        assert isinstance(accessor, RawCheckpointReadAccessor)
        assert accessor.get(thread()).values["log"] == ["in", "work 1"]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "no such model" in caplog.text


async def test_in_delta_mode_a_broken_factory_is_an_error() -> None:
    with pytest.raises(LookupError, match="no such model"):
        open_state_accessor(broken, InMemorySaver(), mode="delta")
    with pytest.raises(LookupError, match="no such model"):
        await aopen_state_accessor(broken, InMemorySaver(), mode="delta")


async def test_a_process_in_another_mode_is_not_degraded() -> None:
    def factory() -> Any:
        raise cm.CheckpointModeReconfigurationError("restart")

    with pytest.raises(cm.CheckpointModeReconfigurationError):
        open_state_accessor(factory, InMemorySaver(), mode="full")
    with pytest.raises(cm.CheckpointModeReconfigurationError):
        await aopen_state_accessor(factory, InMemorySaver(), mode="full")
