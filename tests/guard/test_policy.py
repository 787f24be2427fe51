"""What the policies do with a fork, how a namespace is known to be delta, and who may override."""

from __future__ import annotations

import asyncio
import operator
import pickle
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from deerflow_saver import (
    CachedHistorySaver,
    DeerflowSaverError,
    GuardEvent,
    InvalidConfigError,
    NonHeadWriteError,
    allow_non_head_writes,
)
from deerflow_saver.guard.policy import ALLOW_KEY, MARKER, signal_of


def extend(current: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(current or []), *(item for write in writes for item in write)]


class Delta(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=100)]


class Full(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


THREAD: Any = {"configurable": {"thread_id": "thread"}}


def graph(saver: Any, schema: type = Delta) -> Any:
    builder = StateGraph(schema)  # type: ignore[type-var]
    builder.add_node("node", lambda _: {"log": ["out"]})
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver)


def rows(saver: Any) -> tuple[Any, ...]:
    """Everything an `InMemorySaver` holds."""
    checkpoints = [
        (thread_id, ns, checkpoint_id, row[2])
        for thread_id, namespaces in saver.storage.items()
        for ns, found in namespaces.items()
        for checkpoint_id, row in found.items()
    ]
    own = [(place, slot) for place, found in saver.writes.items() for slot in found]
    return sorted(checkpoints), sorted(own)


def left_behind(saver: Any, schema: type = Delta) -> tuple[Any, Any]:
    """A graph whose thread has moved on, and the config of where it was."""
    app = graph(saver, schema)
    app.invoke({"log": ["a"]}, THREAD)
    older = app.get_state(THREAD).config
    app.invoke({"log": ["b"]}, THREAD)
    return app, older


def put(saver: Any, parent: str | None, *, metadata: Any, values: Any = None) -> str:
    """Put a bare checkpoint; its id."""
    checkpoint = {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values or {}}
    names = {"thread_id": "thread", "checkpoint_ns": "", "checkpoint_id": parent}
    saver.put({"configurable": names}, checkpoint, metadata, {})
    return str(checkpoint["id"])


def test_a_fork_is_refused_by_default_and_nothing_is_stored() -> None:
    inner = InMemorySaver()
    saver = CachedHistorySaver(inner)
    app, older = left_behind(saver)
    before = rows(inner)
    with pytest.raises(NonHeadWriteError) as caught:
        app.invoke({"log": ["fork"]}, older)
    assert rows(inner) == before
    error = caught.value
    head = app.get_state(THREAD).config["configurable"]["checkpoint_id"]
    assert isinstance(error, ValueError)
    assert isinstance(error, DeerflowSaverError)
    assert (error.thread_id, error.checkpoint_ns, error.operation) == ("thread", "", "put")
    assert error.checkpoint_id == older["configurable"]["checkpoint_id"]
    assert (error.head_id, error.channels, error.reason) == (head, ("log",), "fork")
    for part in ("thread", str(error.checkpoint_id), str(head), "log", "prepare_run"):
        assert part in str(error)
    assert app.get_state(THREAD).values == {"log": ["a", "out", "b", "out"]}


def test_the_error_survives_pickling() -> None:
    app, older = left_behind(CachedHistorySaver(InMemorySaver()))
    with pytest.raises(NonHeadWriteError) as caught:
        app.update_state(older, {"log": ["fork"]})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.head_id == caught.value.head_id


def test_what_builds_on_a_refused_put_is_refused_for_the_same_reason() -> None:
    inner = InMemorySaver()
    saver = CachedHistorySaver(inner)
    first = put(saver, None, metadata={"counters_since_delta_snapshot": {"log": (0, 1)}})
    head = put(saver, first, metadata={})
    refused = {**empty_checkpoint(), "id": str(uuid6())}
    config: Any = {
        "configurable": {"thread_id": "thread", "checkpoint_ns": "", "checkpoint_id": first}
    }
    with pytest.raises(NonHeadWriteError):
        saver.put(config, refused, {}, {})
    before = rows(inner)
    behind: Any = {"configurable": {**config["configurable"], "checkpoint_id": refused["id"]}}
    with pytest.raises(NonHeadWriteError, match="builds on a refused write") as caught:
        saver.put(behind, {**empty_checkpoint(), "id": str(uuid6())}, {}, {})
    assert (caught.value.reason, caught.value.behind) == ("fork", True)
    assert caught.value.head_id == head
    with pytest.raises(NonHeadWriteError, match="builds on a refused write"):
        saver.put_writes(behind, [("x", 1)], "task")
    below: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": "sub:1"}}
    with pytest.raises(NonHeadWriteError, match="builds on a refused write"):
        saver.put(below, empty_checkpoint(), {"parents": {"": refused["id"]}}, {})
    assert rows(inner) == before


def half_done(saver: Any) -> Any:
    """A thread whose newest step has one finished task and one that waits for an answer."""
    builder = StateGraph(Delta)
    builder.add_node("asks", lambda _: {"log": [interrupt("well?")]})
    builder.add_node("speaks", lambda _: {"log": ["spoken"]})
    for node in ("asks", "speaks"):
        builder.add_edge(START, node)
    app = builder.compile(checkpointer=saver)
    app.invoke({"log": ["in"]}, THREAD)
    return app


def rename_by_hand(saver: Any) -> None:
    """Put a copy of the head that differs in its metadata, as scripts do."""
    head = saver.get_tuple(THREAD)
    copy = {**head.checkpoint, "id": str(uuid6())}
    saver.put(head.config, copy, {**head.metadata, "title": "new"}, {})


def test_a_copy_of_the_head_without_its_delta_writes_is_refused() -> None:
    inner = InMemorySaver()
    app = half_done(CachedHistorySaver(inner))
    before = rows(inner)
    with pytest.raises(NonHeadWriteError, match="copies the head") as caught:
        rename_by_hand(app.checkpointer)
    assert (caught.value.reason, caught.value.channels) == ("unapplied writes", ("log",))
    assert rows(inner) == before
    app.invoke(Command(resume="answered"), THREAD)
    rename_by_hand(app.checkpointer)
    # Older releases replay parallel writes in an order of their own
    assert sorted(app.get_state(THREAD).values["log"]) == ["answered", "in", "spoken"]


def test_without_the_guard_such_a_copy_reads_what_it_left_out() -> None:
    app = half_done(InMemorySaver())
    rename_by_hand(app.checkpointer)
    assert app.get_state(THREAD).values["log"] == ["in", "spoken"]


def test_a_put_that_counts_what_the_head_holds_is_no_copy() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    app = half_done(saver)
    app.update_state(THREAD, {"log": ["updated"]}, as_node="asks")
    assert "updated" in app.get_state(THREAD).values["log"]


def test_full_threads_fork_as_before() -> None:
    inner = InMemorySaver()
    app, older = left_behind(CachedHistorySaver(inner), Full)
    app.invoke({"log": ["fork"]}, older)
    assert app.get_state(THREAD).values == {"log": ["a", "out", "fork", "out"]}
    assert all(MARKER not in row.metadata for row in inner.list(THREAD))


def test_refuse_all_refuses_forks_of_full_threads() -> None:
    app, older = left_behind(CachedHistorySaver(InMemorySaver(), guard="refuse-all"), Full)
    with pytest.raises(NonHeadWriteError):
        app.invoke({"log": ["fork"]}, older)


@pytest.mark.parametrize("guard", ["off", "observe"])
def test_a_guard_that_is_off_or_only_watches_stores_the_fork(guard: Any) -> None:
    events: list[Any] = []
    saver = CachedHistorySaver(InMemorySaver(), guard=guard, on_event=events.append)
    app, older = left_behind(saver)
    app.invoke({"log": ["fork"]}, older)
    assert app.get_state(THREAD).values == {"log": ["a", "out", "fork", "out"]}
    seen = [event for event in events if isinstance(event, GuardEvent)]
    info = saver.cache_info()
    assert (info.refused, info.observed) == (0, len(seen))
    assert {(event.outcome, event.reason) for event in seen} == (
        {("observed", "fork")} if guard == "observe" else set()
    )


def test_a_refusal_is_counted_and_reported() -> None:
    events: list[Any] = []
    saver = CachedHistorySaver(InMemorySaver(), on_event=events.append)
    app, older = left_behind(saver)
    with pytest.raises(NonHeadWriteError) as caught:
        app.update_state(older, {"log": ["fork"]})
    seen = [event for event in events if isinstance(event, GuardEvent)]
    assert [(event.outcome, event.reason, event.head_id) for event in seen] == [
        ("refused", "fork", caught.value.head_id)
    ]
    assert saver.cache_info().refused == 1


def test_a_refusal_changes_no_cached_answer() -> None:
    inner = InMemorySaver()
    saver = CachedHistorySaver(inner)
    app, older = left_behind(saver)
    head = app.get_state(THREAD).config
    entries, walks = saver.cache_info().entries, saver.cache_info().walks
    with pytest.raises(NonHeadWriteError):
        app.invoke({"log": ["fork"]}, older)
    with pytest.raises(NonHeadWriteError):
        saver.put_writes(older, [("log", ["fork"])], "task")
    assert saver.get_delta_channel_history(
        config=head, channels=["log"]
    ) == inner.get_delta_channel_history(config=head, channels=["log"])
    assert (saver.cache_info().entries, saver.cache_info().walks) == (entries, walks)


def test_an_administrator_may_fork_for_the_length_of_a_block() -> None:
    events: list[Any] = []
    app, older = left_behind(CachedHistorySaver(InMemorySaver(), on_event=events.append))
    with allow_non_head_writes("repair of a broken thread"):
        app.invoke({"log": ["fork"]}, older)
    assert app.get_state(THREAD).values == {"log": ["a", "out", "fork", "out"]}
    notes = {event.note for event in events if isinstance(event, GuardEvent)}
    assert notes == {"repair of a broken thread"}
    with pytest.raises(NonHeadWriteError):
        app.invoke({"log": ["again"]}, older)


async def test_the_override_reaches_tasks_but_not_neighbours() -> None:
    app, older = left_behind(CachedHistorySaver(InMemorySaver()))

    async def neighbour() -> None:
        with pytest.raises(NonHeadWriteError):
            await app.aupdate_state(older, {"log": ["fork"]})

    begun = asyncio.create_task(neighbour())
    with allow_non_head_writes("test"):
        await app.ainvoke({"log": ["fork"]}, older)
        await begun


def test_one_call_may_be_allowed_by_its_config() -> None:
    app, older = left_behind(CachedHistorySaver(InMemorySaver()))
    names = {**older["configurable"], ALLOW_KEY: True}
    app.invoke({"log": ["fork"]}, {"configurable": names})
    assert app.get_state(THREAD).values == {"log": ["a", "out", "fork", "out"]}


@pytest.mark.parametrize("reason", ["", None])
def test_an_override_without_a_reason_is_refused(reason: Any) -> None:
    with pytest.raises(InvalidConfigError), allow_non_head_writes(reason):
        pass


@pytest.mark.parametrize(
    "options", [{"guard": "maybe"}, {"strict": 1}, {"guard": "off", "strict": True}]
)
def test_a_policy_that_does_not_exist_is_refused(options: Any) -> None:
    with pytest.raises(InvalidConfigError):
        CachedHistorySaver(InMemorySaver(), **options)


def test_a_clone_keeps_policy_and_memory() -> None:
    saver = CachedHistorySaver(InMemorySaver(), guard="observe", strict=True)
    clone = saver.with_allowlist([("some.module", "Name")])
    assert clone.guard is not None
    assert (clone.guard.policy, clone.guard.strict) == ("observe", True)
    assert clone.guard.state is saver.guard.state
    off = CachedHistorySaver(InMemorySaver(), guard="off")
    assert off.with_allowlist([("some.module", "Name")]).guard is None


# -- delta or full ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "values", "channels", "vague"),
    [
        ({}, {}, (), False),
        (None, None, (), False),
        ({"counters_since_delta_snapshot": {"log": (1, 2)}}, {}, ("log",), False),
        ({}, {"log": _DeltaSnapshot([]), "x": 1}, ("log",), False),
        ({MARKER: ["a", "b"]}, {}, ("a", "b"), False),
        ({"step": -2}, {}, (), True),
        ({"step": -1}, {}, (), False),
        ({"deerflow_checkpoint_channel_mode": "delta"}, {}, (), True),
        ({"deerflow_checkpoint_channel_mode": "full"}, {}, (), False),
        ({"deerflow_checkpoint_channel_mode": "delta", MARKER: []}, {}, (), False),
    ],
)
def test_a_checkpoint_tells_its_delta_channels(
    metadata: Any, values: Any, channels: tuple[str, ...], vague: Any
) -> None:
    signal = signal_of(metadata, values)
    assert (tuple(sorted(signal.channels)), signal.vague) == (channels, vague)


def test_the_marker_is_handed_down_and_the_callers_metadata_left_alone() -> None:
    inner = InMemorySaver()
    saver = CachedHistorySaver(inner)
    mine = {"counters_since_delta_snapshot": {"log": (0, 1)}}
    first = put(saver, None, metadata=mine)
    second = put(saver, first, metadata={"source": "update"})
    assert mine == {"counters_since_delta_snapshot": {"log": (0, 1)}}
    row = inner.get_tuple(THREAD)
    assert row is not None
    assert row.checkpoint["id"] == second
    assert row.metadata[MARKER] == ["log"]  # type: ignore[typeddict-item]


def test_another_process_knows_a_delta_thread_by_its_marker() -> None:
    inner = InMemorySaver()
    first = put(CachedHistorySaver(inner), None, metadata={}, values={"log": _DeltaSnapshot([])})
    put(CachedHistorySaver(inner), first, metadata={})
    with pytest.raises(NonHeadWriteError):
        put(CachedHistorySaver(inner), first, metadata={})


def test_a_full_thread_that_turns_delta_is_guarded_from_then_on() -> None:
    inner = InMemorySaver()
    saver = CachedHistorySaver(inner)
    first = put(saver, None, metadata={}, values={"log": ["a"]})
    second = put(saver, first, metadata={}, values={"log": ["a", "b"]})
    put(saver, first, metadata={}, values={"log": ["a", "c"]})  # full threads may fork
    head = put(saver, None, metadata={}, values={"log": ["z"]})
    put(saver, head, metadata={"counters_since_delta_snapshot": {"log": (1, 1)}})
    with pytest.raises(NonHeadWriteError):
        put(saver, second, metadata={"counters_since_delta_snapshot": {"log": (1, 1)}})
    with pytest.raises(NonHeadWriteError):
        put(saver, second, metadata={}, values={"log": ["a", "b"]})


def test_a_delta_thread_that_turns_full_may_fork_again() -> None:
    inner = InMemorySaver()
    saver = CachedHistorySaver(inner)
    first = put(saver, None, metadata={"counters_since_delta_snapshot": {"log": (0, 1)}})
    second = put(saver, first, metadata={}, values={"log": ["a"]})
    third = put(saver, second, metadata={}, values={"log": ["a", "b"]})
    put(saver, second, metadata={}, values={"log": ["a", "c"]})
    row = inner.get_tuple(THREAD)
    assert row is not None
    assert row.metadata[MARKER] == []  # type: ignore[typeddict-item]
    fresh = CachedHistorySaver(inner)
    put(fresh, third, metadata={}, values={"log": ["d"]})


def test_an_exit_anchor_counts_as_delta_although_it_names_no_channel() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    put(saver, None, metadata={"step": -2})
    with pytest.raises(NonHeadWriteError) as caught:
        put(saver, None, metadata={"step": -2})
    assert caught.value.reason == "second root"


def test_namespaces_are_judged_apart() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    put(saver, None, metadata={"counters_since_delta_snapshot": {"log": (0, 1)}})
    below: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": "sub"}}
    for _ in range(2):  # a second root, in a full namespace
        checkpoint = {**empty_checkpoint(), "id": str(uuid6())}
        saver.put(below, checkpoint, {}, {})


def test_a_deleted_thread_begins_anew() -> None:
    app, _ = left_behind(CachedHistorySaver(InMemorySaver()))
    app.checkpointer.delete_thread("thread")
    app.invoke({"log": ["new"]}, THREAD)
    assert app.get_state(THREAD).values == {"log": ["new", "out"]}


def test_an_older_clock_is_refused_where_it_cannot_be_advanced() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    first = put(saver, None, metadata={"counters_since_delta_snapshot": {"log": (0, 1)}})
    names = {"thread_id": "thread", "checkpoint_ns": "", "checkpoint_id": first}
    older = {**empty_checkpoint(), "id": "00000000-0000-6000-8000-000000000000"}
    with pytest.raises(NonHeadWriteError) as caught:
        saver.put({"configurable": names}, older, {}, {})
    assert caught.value.reason == "backwards"


def test_ids_made_after_a_load_are_newer_than_what_was_loaded() -> None:
    inner = InMemorySaver()
    now = uuid6().time
    ahead = now + 5_000_000  # half a second
    text = f"{ahead:015x}"
    theirs = f"{text[:8]}-{text[8:12]}-6{text[12:]}-8000-000000000000"
    checkpoint = {**empty_checkpoint(), "id": theirs}
    inner.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {}, {})
    CachedHistorySaver(inner).get_tuple({"configurable": {"thread_id": "t"}})
    assert str(uuid6()) > theirs
