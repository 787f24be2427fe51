"""A write made in full mode meets a thread that turned delta after its writer had looked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.channel_mode import CheckpointModeMismatchError, with_checkpoint_mode
from deerflow_saver.guard.fence_postgres import PostgresFence
from deerflow_saver.guard.policy import POLICIES
from support.modes import compiled, raw_child, schema, thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

FULL = with_checkpoint_mode(thread(), "full")


def rows(saver: Any) -> list[Any]:
    """All that is stored of the thread."""
    return [
        (r.config, r.checkpoint, r.metadata, r.parent_config, sorted(r.pending_writes, key=str))
        for r in saver.list(thread())
    ]


def marked(saver: Any) -> None:
    config = with_checkpoint_mode(thread(), "delta")
    compiled("delta", saver).update_state(config, {"log": ["delta"]}, "work")


def snapshot_head(saver: Any) -> None:
    """No mark, and no counters either: only a stored snapshot tells."""
    for log in (["first"], ["delta"]):
        compiled("delta", saver, 1).update_state(
            thread(), {"log": log, "facts": {"d": 1}, "tags": {"d"}}, "work"
        )


def lost_marks(saver: Any) -> None:
    """No mark, no counters, no snapshot: only a channel without its value tells."""
    for log in (["first"], ["delta"]):
        compiled("delta", saver, 50).update_state(thread(), {"log": log}, "work")
    raw_child(saver, thread())


TURNS: list[Callable[[Any], None]] = [marked, snapshot_head, lost_marks]
every_turn = pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.__name__)


def put_arguments(row: Any) -> tuple[Any, ...]:
    config = with_checkpoint_mode(row.config, "full")
    checkpoint = {**row.checkpoint, "id": str(uuid6())}
    return config, checkpoint, {"source": "update", "step": 9}, {}


@every_turn
@every_sync_case
def test_neither_put_nor_put_writes_stores_anything(
    case: SaverCase, storage: Storage, turn: Callable[[Any], None]
) -> None:
    with case.open(storage) as inner:
        saver: Any = CachedHistorySaver(inner)
        compiled("full", saver).invoke({"log": ["in"]}, FULL)
        seen = saver.get_tuple(thread())
        saver.put_writes(seen.config, [("title", "t")], "00000000-0000-0000-0000-000000000001")
        turn(inner)
        before, delta = rows(inner), compiled("delta", inner)
        values = delta.get_state(thread()).values
        config = with_checkpoint_mode(seen.config, "full")
        with pytest.raises(CheckpointModeMismatchError):
            saver.put_writes(config, [("log", ["x"])], "00000000-0000-0000-0000-000000000002")
        for base in (seen, inner.get_tuple(thread())):
            with pytest.raises(CheckpointModeMismatchError) as caught:
                saver.put(*put_arguments(base))
            assert caught.value.thread_id == "1"
        assert rows(inner) == before
        assert delta.get_state(thread()).values == values


@pytest.mark.parametrize("marks", ["snapshot", "none"])
@every_async_case
async def test_the_async_face_stores_nothing_either(
    case: SaverCase, storage: Storage, marks: str
) -> None:
    async with case.aopen(storage) as inner:
        saver: Any = CachedHistorySaver(inner)
        await compiled("full", saver).ainvoke({"log": ["in"]}, FULL)
        seen = await saver.aget_tuple(thread())
        delta = compiled("delta", inner, 1 if marks == "snapshot" else 50)
        update = {"log": ["delta"], "facts": {"d": 1}, "tags": {"d"}}
        for _ in range(2):
            await delta.aupdate_state(thread(), update, "work")
        head = await inner.aget_tuple(thread())
        if marks == "none":
            _, *child = put_arguments(head)
            await inner.aput(head.config, *child)
            head = await inner.aget_tuple(thread())
        assert "counters_since_delta_snapshot" not in head.metadata
        before = [r async for r in inner.alist(thread())]
        config = with_checkpoint_mode(seen.config, "full")
        with pytest.raises(CheckpointModeMismatchError):
            await saver.aput_writes(
                config, [("log", ["x"])], "00000000-0000-0000-0000-000000000002"
            )
        with pytest.raises(CheckpointModeMismatchError):
            await saver.aput(*put_arguments(seen))
        assert [r async for r in inner.alist(thread())] == before


@every_sync_case
def test_a_run_that_is_under_way_when_the_thread_turns_ends_without_a_trace(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as inner:
        before: list[Any] = []
        values: dict[str, Any] = {}
        delta = compiled("delta", inner)

        def node(state: Any) -> dict[str, Any]:
            marked(inner)
            before.extend(rows(inner))
            values.update(delta.get_state(thread()).values)
            return {"log": ["late"], "title": "late"}

        builder = StateGraph(schema("full"))
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        graph = builder.compile(checkpointer=CachedHistorySaver(inner))
        with pytest.raises(CheckpointModeMismatchError):
            graph.invoke({"log": ["more"]}, FULL, durability="sync")
        assert rows(inner) == before
        assert delta.get_state(thread()).values == values


@every_sync_case
def test_full_threads_and_delta_calls_are_let_through_as_before(
    case: SaverCase, storage: Storage
) -> None:
    with case.open(storage) as inner:
        saver: Any = CachedHistorySaver(inner)
        full = compiled("full", saver)
        for _ in range(2):
            full.invoke({"log": ["in"]}, FULL)
            raw_child(saver, FULL)
            seen = saver.get_tuple(thread())
            raw_child(inner, FULL)  # somebody else's head, which a forecast does not foresee
            task = "00000000-0000-0000-0000-000000000001"
            config = with_checkpoint_mode(seen.config, "full")
            saver.put_writes(config, [("title", "late")], task)
            saver.put(*put_arguments(seen))
        older = list(full.get_state_history(FULL))[4].config
        forked = full.update_state(with_checkpoint_mode(older, "full"), {"title": "fork"}, "ask")
        assert full.get_state(forked).values["title"] == "fork"
        compiled("delta", saver).invoke({"log": ["in"]}, with_checkpoint_mode(thread(), "delta"))


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "off"])
def test_the_mode_is_kept_whatever_the_policy_is(policy: Any) -> None:
    inner = InMemorySaver()
    saver: Any = CachedHistorySaver(inner, guard=policy)
    compiled("full", saver).invoke({"log": ["in"]}, FULL)
    marked(inner)
    with pytest.raises(CheckpointModeMismatchError):
        saver.put(*put_arguments(inner.get_tuple(thread())))


def test_a_head_this_process_put_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = InMemorySaver()
    reads: list[Any] = []

    def get_tuple(config: Any) -> Any:
        reads.append(config)
        return InMemorySaver.get_tuple(inner, config)

    saver: Any = CachedHistorySaver(inner)
    monkeypatch.setattr(inner, "get_tuple", get_tuple)
    compiled("full", saver).invoke({"log": ["in"]}, FULL)
    reads.clear()
    for _ in range(2):
        saver.put(*put_arguments(saver.get_tuple(thread())))
    assert len(reads) == 2
    raw_child(inner, thread())
    reads.clear()
    saver.put(*put_arguments(saver.get_tuple(thread())))
    assert len(reads) == 2  # somebody else's head: once by the caller, once by the gate
    raw_child(inner, thread())
    reads.clear()
    saver.put(*put_arguments(saver.get_tuple(FULL)))
    assert len(reads) == 1  # the caller's read was in full mode, and judged


@every_turn
def test_a_run_in_full_mode_ends_before_its_first_node(turn: Callable[[Any], None]) -> None:
    inner = InMemorySaver()
    turn(inner)
    before, ran = rows(inner), []
    builder = StateGraph(schema("full"))
    builder.add_node("node", ran.append)
    builder.add_edge(START, "node")
    saver: Any = CachedHistorySaver(inner)
    with pytest.raises(CheckpointModeMismatchError):
        builder.compile(checkpointer=saver).invoke({"log": ["in"]}, FULL)
    assert ran == []
    assert rows(inner) == before


async def test_the_async_face_ends_it_too() -> None:
    inner = InMemorySaver()
    lost_marks(inner)
    graph = compiled("full", CachedHistorySaver(inner))
    with pytest.raises(CheckpointModeMismatchError):
        await graph.ainvoke({"log": ["in"]}, FULL)


def test_a_subgraphs_first_row_goes_by_the_root_graphs_head() -> None:
    inner = InMemorySaver()
    saver: Any = CachedHistorySaver(inner)
    compiled("delta", inner).invoke({"log": ["in"]}, thread())
    row = inner.get_tuple(thread())
    assert row is not None
    config, *rest = put_arguments(row)
    config["configurable"]["checkpoint_ns"] = "child:1"
    del config["configurable"]["checkpoint_id"]
    with pytest.raises(CheckpointModeMismatchError):
        saver.put(config, *rest)
    assert inner.get_tuple(thread(checkpoint_ns="child:1")) is None


def test_on_postgres_a_full_write_is_foreseen_too(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trip, as long as nobody else puts a head."""
    looks: list[Any] = []
    look = PostgresFence.look

    def counting(self: Any, asked: Any) -> Any:
        looks.append(asked)
        return look(self, asked)

    monkeypatch.setattr(PostgresFence, "look", counting)
    with PostgresSaver.from_conn_string(storage.postgres_uri) as inner:
        inner.setup()
        saver: Any = CachedHistorySaver(inner)
        full = compiled("full", saver)
        full.invoke({"log": ["in"]}, FULL)
        looks.clear()
        full.invoke({"log": ["in"]}, FULL)
        assert looks == []
        raw_child(inner, thread())
        saver.put(*put_arguments(saver.get_tuple(thread())))
        assert len(looks) == 1  # the forecast fails, and what is there has to be read
        saver.put(*put_arguments(saver.get_tuple(thread())))
        assert len(looks) == 1
