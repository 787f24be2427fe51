"""A wrapper's class has exactly the methods its saver's class has, looking as they do there."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance.capabilities import DetectedCapabilities
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph_checkpoint_lmdb import AsyncLMDBSaver, LMDBSaver
from langgraph_checkpoint_objectstorage import ObjectStorageSaver
from langgraph_checkpoint_plainredis import AsyncRedisSaver, RedisSaver
from langgraph_oep import OEPCheckpointSaver
from langgraph_tenancy import TenantScopedCheckpointer

from deerflow_saver import CachedHistorySaver, fixes
from support.conversation import assert_reads_equal, thread, turns
from support.savers import SaverCase, Storage, every_async_case, every_sync_case
from support.upstream import accepts_task_path

OPTIONAL = ("delete_thread", "delete_for_runs", "copy_thread", "prune")
FACES = tuple(prefix + name for name in OPTIONAL for prefix in ("", "a"))
READS_AND_WRITES = ("get_tuple", "list", "put", "put_writes", "get_delta_channel_history")


class WithoutTaskPath(InMemorySaver):
    """A saver from before `task_path`."""

    def put_writes(  # type: ignore[override]
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str
    ) -> None:
        """Write, the old way."""
        super().put_writes(config, writes, task_id)

    async def aput_writes(  # type: ignore[override]
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str
    ) -> None:
        """Write, the old way."""
        super().put_writes(config, writes, task_id)


class WithStarArguments(InMemorySaver):
    """A careless wrapper of somebody's."""

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        """Write, whatever is passed."""
        super().put_writes(*args, **kwargs)


class Copying(InMemorySaver):
    """A saver with one optional method more, on one face."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy."""
        for row in reversed(list(self.list(thread(source_thread_id)))):
            place = {"thread_id": target_thread_id, "checkpoint_ns": ""}
            if row.parent_config is not None:
                place["checkpoint_id"] = row.parent_config["configurable"]["checkpoint_id"]
            stored = self.put(
                {"configurable": place}, row.checkpoint, row.metadata, self._versions(row)
            )
            for task_id, channel, value in row.pending_writes or ():
                self.put_writes(stored, [(channel, value)], f"{task_id}-{channel}")

    def _versions(self, row: Any) -> Any:
        return row.checkpoint["channel_versions"]


class Deleting(InMemorySaver):
    """A saver that knows which run wrote a checkpoint."""

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs, whatever their thread."""
        for row in list(self.list(None, filter={"source": "input"})):
            if row.metadata.get("run_id") in run_ids:
                self.delete_thread(row.config["configurable"]["thread_id"])


class Sparse(BaseCheckpointSaver[str]):
    """A saver with nothing but a sync `get_tuple`."""

    def get_tuple(self, config: RunnableConfig) -> None:
        """Find nothing."""


TYPES: tuple[type, ...] = (
    InMemorySaver,
    SqliteSaver,
    AsyncSqliteSaver,
    PostgresSaver,
    AsyncPostgresSaver,
    LMDBSaver,
    AsyncLMDBSaver,
    ObjectStorageSaver,
    RedisSaver,
    AsyncRedisSaver,
    OEPCheckpointSaver,
    TenantScopedCheckpointer,
    WithoutTaskPath,
    WithStarArguments,
    Copying,
    Deleting,
    Sparse,
)
every_type = pytest.mark.parametrize("wrapped", TYPES, ids=lambda wrapped: wrapped.__name__)


def wrap(wrapped: type, fixes: Any = "auto") -> Any:
    """A wrapper round a saver whose storage is never opened: only its class matters here."""
    return CachedHistorySaver(wrapped.__new__(wrapped), guard="off", fixes=fixes)


def overridden(cls: type) -> set[str]:
    """As LangGraph's conformance suite looks at a class."""
    return {
        name
        for name in FACES
        if getattr(cls, name, None) is not getattr(BaseCheckpointSaver, name, None)
        and hasattr(cls, name)
    }


@every_type
def test_optional_methods_exist_exactly_where_the_saver_has_them(wrapped: type) -> None:
    assert overridden(type(wrap(wrapped))) == overridden(wrapped)


@every_type
def test_the_conformance_suite_detects_the_savers_capabilities(wrapped: type) -> None:
    detected = DetectedCapabilities.from_instance(wrap(wrapped))
    assert detected == DetectedCapabilities.from_instance(wrapped.__new__(wrapped))


@every_type
def test_signatures_and_docstrings_are_the_savers(wrapped: type) -> None:
    # With the fix, put_writes names a task path that the saver takes among *args
    saver, raw = wrap(wrapped, fixes="off"), wrapped.__new__(wrapped)
    faces = [face for name in (*READS_AND_WRITES, *OPTIONAL) for face in (name, f"a{name}")]
    for name in (face for face in faces if hasattr(raw, face)):
        ours, theirs = getattr(saver, name), getattr(raw, name)
        assert inspect.signature(ours) == inspect.signature(theirs), name
        assert inspect.getdoc(ours) == inspect.getdoc(theirs), name
        assert ours.__name__ == theirs.__name__


@every_type
def test_langgraph_sees_whether_the_saver_takes_a_task_path(wrapped: type) -> None:
    saver, raw = wrap(wrapped), wrapped.__new__(wrapped)
    for name in ("put_writes", "aput_writes"):
        method = getattr(raw, name)
        hidden = "args" in inspect.signature(method).parameters
        takes = accepts_task_path(method) or (hidden and "star-args-wrapper" in fixes.selected())
        assert accepts_task_path(getattr(saver, name)) is takes


@every_type
def test_coroutine_functions_stay_coroutine_functions(wrapped: type) -> None:
    saver, raw = wrap(wrapped), wrapped.__new__(wrapped)
    names = (*FACES, "aget_tuple", "aput", "aput_writes", "aget_delta_channel_history")
    for name in (name for name in names if hasattr(raw, name)):
        expected = inspect.iscoroutinefunction(getattr(raw, name))
        assert inspect.iscoroutinefunction(getattr(saver, name)) is expected, name


def test_savers_of_one_type_share_a_class() -> None:
    assert type(wrap(InMemorySaver)) is type(wrap(InMemorySaver))
    assert type(wrap(InMemorySaver)) is not type(wrap(Copying))


def test_a_subclass_of_the_wrapper_stays_one() -> None:
    class Ours(CachedHistorySaver):
        """A user's own wrapper."""

    ours = Ours(InMemorySaver())
    assert isinstance(ours, Ours)
    assert isinstance(ours.with_allowlist([("a", "b")]), Ours)
    assert type(ours) is not type(CachedHistorySaver(InMemorySaver()))


def test_a_missing_optional_method_keeps_the_savers_error() -> None:
    raw = InMemorySaver()
    saver: Any = CachedHistorySaver(raw)
    for call in (
        lambda it: it.copy_thread("1", "2"),
        lambda it: it.prune(["1"]),
        lambda it: it.delete_for_runs(["1"]),
    ):
        with pytest.raises(NotImplementedError) as theirs:
            call(raw)
        with pytest.raises(NotImplementedError) as ours:
            call(saver)
        assert repr(ours.value) == repr(theirs.value)


@pytest.mark.parametrize("wrapped", [WithoutTaskPath, WithStarArguments, Copying])
def test_old_signatures_are_served_as_they_are(wrapped: type[InMemorySaver]) -> None:
    raw = wrapped()
    saver: Any = CachedHistorySaver(raw)
    for _ in turns(saver, thread()):
        assert_reads_equal(saver, raw, thread())


def test_a_copied_thread_is_read_anew() -> None:
    raw = Copying()
    saver: Any = CachedHistorySaver(raw)
    for _ in turns(saver, thread("target"), count=1):
        assert_reads_equal(saver, raw, thread("target"))
    for _ in turns(saver, thread("source")):
        pass
    saver.copy_thread("source", "target")
    assert_reads_equal(saver, raw, thread("target"))
    assert_reads_equal(saver, raw, thread("source"))


def test_deleted_runs_are_forgotten_in_every_thread() -> None:
    raw = Deleting()
    saver: Any = CachedHistorySaver(raw)
    heads = {}
    for name in ("one", "two", "three"):
        config: RunnableConfig = {**thread(name), "metadata": {"run_id": name}}
        for _ in turns(saver, config, count=1):
            assert_reads_equal(saver, raw, thread(name))
        heads[name] = saver.get_tuple(thread(name)).config
    saver.delete_for_runs(["one", "two"])
    for name in ("one", "two"):
        assert saver.get_delta_channel_history(config=heads[name], channels=["notes"]) == {
            "notes": {"writes": []}
        }
    assert_reads_equal(saver, raw, thread("three"))


@every_sync_case
def test_pruning_is_the_savers_own(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        for _ in turns(saver, thread()):
            pass
        head = saver.get_tuple(thread()).config
        if "prune" not in overridden(type(raw)):
            with pytest.raises(NotImplementedError):
                saver.prune(["thread"], strategy="delete")
            assert_reads_equal(saver, raw, thread())
            return
        saver.prune(["thread"], strategy="delete")
        assert list(saver.list(thread())) == []
        assert saver.get_delta_channel_history(config=head, channels=["messages"]) == {
            "messages": {"writes": []}
        }


@every_async_case
async def test_async_deleting_a_thread_forgets_it(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        place = {"thread_id": "1", "checkpoint_ns": ""}
        root: Any = {**_checkpoint("1"), "channel_values": {"log": "seed"}}
        config = await saver.aput({"configurable": place}, root, {}, {"log": "1"})
        await saver.aput_writes(config, [("log", "first")], "task")
        config = await saver.aput(config, _checkpoint("2"), {}, {})
        history = await saver.aget_delta_channel_history(config=config, channels=["log"])
        assert history == await raw.aget_delta_channel_history(config=config, channels=["log"])
        assert "seed" in history["log"] or history["log"]["writes"]
        await saver.adelete_thread("1")
        gone = await saver.aget_delta_channel_history(config=config, channels=["log"])
        assert gone == {"log": {"writes": []}}


def _checkpoint(checkpoint_id: str) -> Any:
    return {
        "v": 4,
        "id": checkpoint_id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {},
        "channel_versions": {"log": "1"},
        "versions_seen": {},
    }
