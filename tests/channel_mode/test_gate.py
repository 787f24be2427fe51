"""The gate, against threads that real graphs stored in real savers."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import channel_mode as cm
from deerflow_saver.errors import DeerflowSaverError
from support.modes import compiled, raw_child, thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

TEXT = "Thread requires delta mode; materialize and convert its checkpoints before using full mode."


def test_the_text_is_exact_and_the_place_is_noted() -> None:
    error = cm.CheckpointModeMismatchError(thread_id="t", checkpoint_ns="sub", checkpoint_id="c")
    assert str(error) == TEXT
    assert (error.thread_id, error.checkpoint_ns, error.checkpoint_id) == ("t", "sub", "c")
    assert "'t'" in error.__notes__[0]
    assert isinstance(error, RuntimeError)
    assert isinstance(error, DeerflowSaverError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.thread_id) == (TEXT, "t")


def test_a_snapshot_of_a_delta_thread_is_refused_in_full_mode_only() -> None:
    snapshot = SimpleNamespace(metadata={"counters_since_delta_snapshot": {"log": (1, 1)}})
    with pytest.raises(cm.CheckpointModeMismatchError) as caught:
        cm.raise_if_snapshot_incompatible(snapshot, "full")
    assert str(caught.value) == TEXT
    cm.raise_if_snapshot_incompatible(snapshot, "delta")
    cm.raise_if_snapshot_incompatible(SimpleNamespace(metadata={}), "full")
    cm.raise_if_snapshot_incompatible(None, "full")


def _tuple(saver: Any, config: Any = None) -> Any:
    return saver.get_tuple(config or thread())


class Reads:
    """Counts the reads of a saver, and refuses its writes."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver
        self.calls: list[tuple[str, Any]] = []

    def get_tuple(self, config: Any) -> Any:
        self.calls.append(("get_tuple", config["configurable"].get("checkpoint_id")))
        return self.saver.get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        self.calls.append(("history", tuple(channels)))
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        return self.get_delta_channel_history(config=config, channels=channels)


async def both(saver: Any, config: Any, mode: Any, **more: Any) -> list[str | None]:
    """The refusal's text, if there is one, on both faces of the gate."""
    outcomes: list[str | None] = []
    for gate in (cm.ensure_checkpoint_mode_compatible, cm.aensure_checkpoint_mode_compatible):
        try:
            made = gate(saver, config, mode, **more)
            if made is not None:
                await made
        except cm.CheckpointModeMismatchError as error:
            outcomes.append(str(error))
        else:
            outcomes.append(None)
    return outcomes


REFUSED = [TEXT] * 2
LET_THROUGH = [None, None]


async def test_in_delta_mode_nothing_is_read() -> None:
    saver = Reads(InMemorySaver())
    assert await both(saver, thread(), "delta") == LET_THROUGH
    assert saver.calls == []


async def test_in_full_mode_one_tuple_is_read_and_a_missing_thread_is_let_through() -> None:
    saver = Reads(InMemorySaver())
    assert await both(saver, thread(), "full") == LET_THROUGH
    assert saver.calls == [("get_tuple", None)] * 2


async def test_the_head_is_judged_before_the_selected_checkpoint() -> None:
    inner = InMemorySaver()
    full = compiled("full", inner)
    for _ in range(2):
        full.invoke({"log": ["in"]}, thread())
    older = list(full.get_state_history(thread()))[-1].config["configurable"]["checkpoint_id"]
    saver = Reads(inner)
    assert await both(saver, thread(checkpoint_id=older), "full") == LET_THROUGH
    assert saver.calls == [("get_tuple", None), ("get_tuple", older)] * 2
    compiled("delta", inner).invoke({"log": ["more"]}, thread())
    assert await both(saver, thread(checkpoint_id=older), "full") == REFUSED


@every_sync_case
@pytest.mark.parametrize("turns", range(1, 5))
def test_every_checkpoint_of_an_unmarked_delta_thread_is_recognised(
    case: SaverCase, storage: Storage, turns: int
) -> None:
    """Some heads are snapshots, whose counters LangGraph deletes."""
    with case.open(storage) as saver:
        graph = compiled("delta", saver)
        for _ in range(turns):
            graph.invoke({"log": ["in"]}, thread())
        rows = list(saver.list(thread()))
        heads = [r for r in rows if (r.metadata or {}).get("step", -1) >= 0]
        assert len(heads) >= turns
        for stored in heads:
            with pytest.raises(cm.CheckpointModeMismatchError):
                cm.raise_if_checkpoint_tuple_incompatible(stored, "full")
            with pytest.raises(cm.CheckpointModeMismatchError):
                cm.ensure_checkpoint_mode_compatible(saver, stored.config, "full")


@every_sync_case
def test_a_full_thread_passes_at_every_checkpoint_though_some_channels_store_nothing(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as saver:
        graph = compiled("full", saver)
        for _ in range(3):
            graph.invoke({"log": ["in"]}, thread())
        rows = list(saver.list(thread()))
        assert any("hint" not in r.checkpoint["channel_values"] for r in rows[:-1])
        for stored in rows:
            cm.raise_if_checkpoint_tuple_incompatible(stored, "full", channels=graph.channels)
            cm.ensure_checkpoint_mode_compatible(saver, stored.config, "full")


@every_sync_case
@pytest.mark.parametrize("turns", range(1, 4))
def test_a_child_that_lost_every_mark_is_recognised(
    case: SaverCase, storage: Storage, turns: int
) -> None:
    with case.open(storage) as saver:
        graph = compiled("delta", saver)
        for _ in range(turns):
            graph.invoke({"log": ["in"]}, thread())
        for _ in range(2):
            raw_child(saver, thread())
            head = _tuple(saver)
            assert not cm.checkpoint_metadata_uses_delta(head.metadata)
            with pytest.raises(cm.CheckpointModeMismatchError):
                cm.ensure_checkpoint_mode_compatible(saver, thread(), "full")


@every_async_case
async def test_the_async_gate_recognises_the_same(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as saver:
        graph = compiled("delta", saver)
        await graph.ainvoke({"log": ["in"]}, thread())
        full = compiled("full", saver)
        await full.ainvoke({"log": ["in"]}, thread("other"))
        with pytest.raises(cm.CheckpointModeMismatchError):
            await cm.aensure_checkpoint_mode_compatible(saver, thread(), "full")
        await cm.aensure_checkpoint_mode_compatible(saver, thread("other"), "full")


async def test_the_saver_is_asked_only_about_channels_in_doubt() -> None:
    inner = InMemorySaver()
    full = compiled("full", inner)
    for _ in range(2):
        full.invoke({"log": ["in"]}, thread())
    full.update_state(thread(), {"title": "t"}, "ask")  # the hint is gone by now
    saver = Reads(inner)
    assert await both(saver, thread(), "full", channels=full.channels) == LET_THROUGH
    assert saver.calls == [("get_tuple", None)] * 2
    saver.calls.clear()
    assert await both(saver, thread(), "full") == LET_THROUGH
    assert saver.calls == [("get_tuple", None), ("history", ("hint",))] * 2


async def test_a_saver_without_the_mark_in_its_rows_is_seen_through() -> None:
    """Whether a config's metadata is stored is up to the saver."""

    class Forgetful(InMemorySaver):
        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            return super().put({**config, "metadata": {}}, checkpoint, metadata, new_versions)

    saver = Forgetful()
    compiled("delta", saver).invoke({"log": ["in"]}, cm.with_checkpoint_mode(thread(), "delta"))
    assert "deerflow_checkpoint_channel_mode" not in _tuple(saver).metadata
    assert await both(saver, thread(), "full") == REFUSED


@every_sync_case
def test_a_fork_passes_though_the_branch_it_left_wrote_to_a_channel_that_stores_nothing(
    case: SaverCase, storage: Storage
) -> None:
    """The hint that the step wrote is on the fork's parent, and no part of the fork."""
    with case.open(storage) as saver:
        graph = compiled("full", saver)
        for _ in range(2):
            graph.invoke({"log": ["in"]}, thread())
        older = next(s for s in graph.get_state_history(thread()) if "work" in s.next)
        graph.update_state(older.config, {"title": "fork"}, "ask")
        row = _tuple(saver)
        assert (
            "hint" in row.checkpoint["channel_versions"].keys() - row.checkpoint["channel_values"]
        )
        cm.ensure_checkpoint_mode_compatible(saver, thread(), "full")
