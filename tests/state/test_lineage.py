"""The checkpoint before a message, on real threads of every saver and in both modes."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite, interrupt
from typing_extensions import TypedDict

from deerflow_saver.channel_mode import (
    CheckpointChannelMode,
    CheckpointModeMismatchError,
    inject_checkpoint_mode,
)
from deerflow_saver.state import (
    CheckpointLineageIntegrityError,
    CheckpointParentMissingError,
    CheckpointStateAccessor,
    RawCheckpointReadAccessor,
    afind_base_before_message,
    afind_checkpoint_before_message,
    delta_field,
    find_base_before_message,
    find_checkpoint_before_message,
    find_checkpoint_before_message_chronologically,
    get_thread_state_schema,
)
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

MODES: tuple[CheckpointChannelMode, ...] = ("full", "delta")
THREAD: dict[str, Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
both_modes = pytest.mark.parametrize("mode", MODES)


@dataclass
class Accessor(CheckpointStateAccessor):
    """Counts what it materialises."""

    materialised: Counter[str] = field(default_factory=Counter)

    def get(self, config: Any, **options: Any) -> Any:
        self.materialised["state"] += 1
        return super().get(config, **options)

    async def aget(self, config: Any, **options: Any) -> Any:
        self.materialised["state"] += 1
        return await super().aget(config, **options)

    def history(self, config: Any, **options: Any) -> Any:
        self.materialised["history"] += 1
        return super().history(config, **options)

    async def ahistory(self, config: Any, **options: Any) -> Any:
        self.materialised["history"] += 1
        return await super().ahistory(config, **options)


def build(mode: CheckpointChannelMode, saver: BaseCheckpointSaver[Any], frequency: int = 50) -> Any:
    """Three steps per turn, each with a message whose id tells turn and step."""

    def step(name: str) -> Any:
        def node(state: Any) -> dict[str, Any]:
            turn = state["messages"][-1].id.split("-")[1]
            if state.get("title") == "ask" and name == "act":
                interrupt("go on?")
            return {"messages": [AIMessage(name, id=f"{name}-{turn}")]}

        return node

    builder = StateGraph(get_thread_state_schema(mode, frequency))
    names = ("plan", "act", "answer")
    for name in names:
        builder.add_node(name, step(name))
    for before, after in zip((START, *names), (*names, END), strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def accessor_of(mode: CheckpointChannelMode, saver: Any, frequency: int = 50) -> Accessor:
    return Accessor(build(mode, saver, frequency), saver, mode)


def asked(turn: int, **more: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage("q", id=f"q-{turn}")], **more}


def converse(accessor: Accessor, turns: int, first: int = 0) -> list[dict[str, Any]]:
    """The config of the last checkpoint of every turn."""
    tails = []
    for turn in range(first, first + turns):
        accessor.graph.invoke(asked(turn), marked(accessor.mode))
        tails.append(accessor.graph.get_state(THREAD).config)
    return tails


def marked(mode: CheckpointChannelMode) -> dict[str, Any]:
    config: dict[str, Any] = {"configurable": dict(THREAD["configurable"])}
    inject_checkpoint_mode(config, mode)
    return config


def head_of(accessor: Accessor) -> Any:
    return accessor.graph.get_state(THREAD)


def identity(state: Any) -> Any:
    return None if state is None else state.config["configurable"]["checkpoint_id"]


def found(accessor: Accessor, message_id: str, **options: Any) -> Any:
    return identity(
        find_checkpoint_before_message(accessor, head_of(accessor), message_id, **options)
    )


# Where a branch before a message starts.


@both_modes
@every_sync_case
def test_a_turn_starts_at_the_settled_tail_of_the_one_before(
    case: SaverCase, mode: CheckpointChannelMode, storage: Storage
) -> None:
    with case.open(storage) as saver:
        accessor = accessor_of(mode, saver)
        tails = converse(accessor, 4)
        for turn, tail in enumerate(tails[:-1], 1):
            base = find_checkpoint_before_message(accessor, head_of(accessor), f"q-{turn}")
            assert identity(base) == tail["configurable"]["checkpoint_id"]
            assert [m.id for m in base.values["messages"]][-1] == f"answer-{turn - 1}"
            assert found(accessor, f"act-{turn}") == identity(base)
        assert found(accessor, "q-0") is None


@both_modes
@every_async_case
async def test_the_async_face_finds_the_same(
    case: SaverCase, mode: CheckpointChannelMode, storage: Storage
) -> None:
    async with case.aopen(storage) as saver:
        accessor = accessor_of(mode, saver)
        tails = []
        for turn in range(3):
            await accessor.graph.ainvoke(asked(turn), marked(mode))
            tails.append((await accessor.graph.aget_state(THREAD)).config)
        head = await accessor.graph.aget_state(THREAD)
        for finder in (afind_checkpoint_before_message, afind_base_before_message):
            base = await finder(accessor, head, "q-2")
            assert identity(base) == tails[1]["configurable"]["checkpoint_id"]
            assert await finder(accessor, head, "q-0") is None


@both_modes
def test_a_sibling_is_never_taken_for_an_ancestor(mode: CheckpointChannelMode) -> None:
    accessor = accessor_of(mode, InMemorySaver())
    first, second, _ = converse(accessor, 3)
    accessor.graph.invoke(asked(9), {"configurable": {**first["configurable"]}})
    assert identity(head_of(accessor)) != identity_in(second)
    assert found(accessor, "q-9") == identity_in(first)
    base = find_base_before_message(accessor, head_of(accessor), "q-9")
    assert identity(base) == identity_in(first)
    assert accessor.materialised["history"] == 0


def identity_in(config: dict[str, Any]) -> str:
    return str(config["configurable"]["checkpoint_id"])


@both_modes
def test_an_interrupted_turn_is_no_place_to_start(mode: CheckpointChannelMode) -> None:
    accessor = accessor_of(mode, InMemorySaver())
    (tail,) = converse(accessor, 1)
    accessor.graph.invoke(asked(1, title="ask"), marked(mode))
    assert head_of(accessor).next == ("act",)
    assert found(accessor, "plan-1") == identity_in(tail)


@both_modes
def test_a_message_of_a_step_that_is_not_finished_is_in_no_checkpoint_yet(
    mode: CheckpointChannelMode,
) -> None:
    """A head read live shows what finished tasks wrote, also if their step goes on."""

    def quick(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("quick", id="quick")]}

    def slow(state: Any) -> dict[str, Any]:
        interrupt("?")
        return {}

    saver = InMemorySaver()
    builder = StateGraph(get_thread_state_schema(mode))
    for name, node in (("quick", quick), ("slow", slow)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    accessor = Accessor(builder.compile(checkpointer=saver), saver, mode)
    accessor.graph.invoke(asked(0), marked(mode))
    head = head_of(accessor)
    assert "quick" in [message.id for message in head.values["messages"]]
    assert find_checkpoint_before_message(accessor, head, "quick") is None
    assert accessor.get(head.config).next == ("quick", "slow")


# What it costs.


@both_modes
def test_few_checkpoints_are_materialised(mode: CheckpointChannelMode) -> None:
    accessor = accessor_of(mode, InMemorySaver(), frequency=500)
    converse(accessor, 20)
    assert found(accessor, "q-2") is not None
    # Of 90 ancestors: the one that was about to write the message, and the answer.
    assert accessor.materialised["state"] == 2


def last_three(left: Any, right: Any) -> Any:
    return add_messages(left, right)[-3:]


class Forgetful(TypedDict):
    messages: Annotated[list[AnyMessage], delta_field(last_three)]
    n: int


def test_another_reducer_is_trusted_with_nothing() -> None:
    """One that forgets old messages changes what no write names."""
    saver = InMemorySaver()
    builder = StateGraph(Forgetful)
    builder.add_node("a", lambda state: {"n": 1})
    builder.add_edge(START, "a")
    accessor = Accessor(builder.compile(checkpointer=saver), saver, "delta")
    for turn in (0, 1, 2, 3, 4, 0, 5):
        accessor.graph.invoke(asked(turn), marked("delta"))
    base = find_checkpoint_before_message(accessor, head_of(accessor), "q-0")
    assert [message.id for message in base.values["messages"]] == ["q-2", "q-3", "q-4"]


# Against materialising every ancestor.


def by_materialising_everything(accessor: Accessor, message_id: str) -> Any:
    state = head_of(accessor)
    if sum(m.id == message_id for m in state.values.get("messages", ())) != 1:
        return "refused"
    while state.parent_config:
        state = accessor.graph.get_state(state.parent_config)
        held = [message.id for message in state.values.get("messages", ())]
        if message_id not in held and not state.next:
            return identity(state)
    return None


TURNS = st.integers(0, 3).map(lambda turn: ("turn", turn))
REMOVED = st.integers(0, 3).map(lambda turn: ("remove", turn))
RESET = st.sampled_from([("reset", 0), ("overwrite", 1), ("overwrite", 2), ("nameless", 0)])
FORKS = st.integers(0, 12).map(lambda back: ("fork", back))


def apply(accessor: Accessor, operation: tuple[str, int]) -> None:
    kind, number = operation
    graph, config = accessor.graph, marked(accessor.mode)
    known = [m.id for m in head_of(accessor).values.get("messages", ())]
    if kind == "turn":
        graph.invoke(asked(number), config)
    elif kind == "remove" and f"q-{number}" in known:
        graph.update_state(config, {"messages": [RemoveMessage(id=f"q-{number}")]}, "answer")
    elif kind == "reset":
        graph.update_state(config, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}, "answer")
    elif kind == "overwrite":
        kept = [HumanMessage("kept", id=f"q-{number}")]
        graph.update_state(config, {"messages": Overwrite(kept)}, "answer")
    elif kind == "nameless":
        graph.update_state(config, {"messages": [("human", "x")]}, "answer")
    elif kind == "fork":
        rows = list(graph.get_state_history(config, limit=number + 1))
        if rows:
            graph.update_state(rows[-1].config, asked(number % 4), "answer")


@settings(max_examples=60)
@given(
    st.sampled_from(MODES),
    st.sampled_from((1, 3, 50)),
    st.lists(TURNS | REMOVED | RESET | FORKS, min_size=1, max_size=8),
)
def test_the_walk_finds_what_materialising_every_ancestor_finds(
    mode: CheckpointChannelMode, frequency: int, operations: list[tuple[str, int]]
) -> None:
    accessor = accessor_of(mode, InMemorySaver(), frequency)
    accessor.graph.invoke(asked(0), marked(mode))
    for operation in operations:
        apply(accessor, operation)
    for turn in range(4):
        expected = by_materialising_everything(accessor, f"q-{turn}")
        try:
            actual = found(accessor, f"q-{turn}")
        except CheckpointLineageIntegrityError:
            actual = "refused"
        assert actual == expected


# Threads that are damaged, imported, or written by others.


class Rows:
    """A thread put together row by row, with whole values."""

    def __init__(self) -> None:
        self.saver = InMemorySaver()
        self.accessor = accessor_of("full", self.saver)

    def put(
        self,
        name: str,
        parent: str | None,
        messages: tuple[str, ...] = (),
        **metadata: Any,
    ) -> dict[str, Any]:
        checkpoint = empty_checkpoint()
        checkpoint["id"] = name
        checkpoint["channel_values"] = {
            "messages": [HumanMessage("x", id=message) for message in messages]
        }
        checkpoint["channel_versions"] = {"messages": f"{name}.1"}
        config = {"configurable": {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": parent}}
        versions: Any = checkpoint["channel_versions"]
        stored: Any = {"source": "loop", "step": 1, **metadata}
        return dict(self.saver.put(config, checkpoint, stored, versions))

    def head(self) -> Any:
        return head_of(self.accessor)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@contextmanager
def refused(error: type[Exception], text: str) -> Iterator[None]:
    with pytest.raises(error) as caught:
        yield
    assert str(caught.value) == text
    assert any("'1'" in note for note in getattr(caught.value, "__notes__", ()))


UNADDRESSABLE = "Checkpoint parent link is not addressable"


def test_a_message_that_the_head_does_not_hold_is_refused(rows: Rows) -> None:
    rows.put("01", None, ("a",))
    with refused(
        CheckpointLineageIntegrityError, "Target message is not present in the checkpoint head"
    ):
        found(rows.accessor, "b")


def test_a_message_that_is_there_twice_is_refused(rows: Rows) -> None:
    rows.put("01", None, ("a", "a"))
    with refused(
        CheckpointLineageIntegrityError,
        "Target message is present more than once in the checkpoint head",
    ):
        found(rows.accessor, "a")


def test_an_id_of_another_type_is_another_id(rows: Rows) -> None:
    rows.put("01", None, ("7",))
    with pytest.raises(CheckpointLineageIntegrityError):
        find_checkpoint_before_message(rows.accessor, rows.head(), 7)  # type: ignore[arg-type]


def test_a_dangling_parent_fails_closed(rows: Rows) -> None:
    rows.put("02", "01", ("a",))
    for finder in (find_checkpoint_before_message, find_base_before_message):
        with refused(CheckpointLineageIntegrityError, UNADDRESSABLE):
            finder(rows.accessor, rows.head(), "a")
    assert rows.accessor.materialised["history"] == 0


def test_a_cycle_fails_closed(rows: Rows) -> None:
    rows.put("01", "02", ("a",))
    rows.put("02", "01", ("a",))
    for finder in (find_checkpoint_before_message, find_base_before_message):
        with refused(CheckpointLineageIntegrityError, "Checkpoint lineage contains a cycle"):
            finder(rows.accessor, rows.head(), "a")
    assert rows.accessor.materialised["history"] == 0


def test_a_saver_that_answers_another_checkpoint_fails_closed(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.put("01", None)
    rows.put("02", "01", ("a",))
    rows.put("03", "02", ("a",))
    answer = rows.saver.get_tuple

    def wrong(config: Any) -> Any:
        asked_for = config["configurable"].get("checkpoint_id")
        return answer(
            {**THREAD, "configurable": {**config["configurable"], "checkpoint_id": "01"}}
            if asked_for == "02"
            else config
        )

    head = rows.head()
    monkeypatch.setattr(rows.saver, "get_tuple", wrong)
    with refused(CheckpointLineageIntegrityError, UNADDRESSABLE):
        find_checkpoint_before_message(rows.accessor, head, "a")


def test_an_accessor_that_answers_another_checkpoint_fails_closed(rows: Rows) -> None:
    rows.put("01", None)
    rows.put("02", "01", ("a",))
    head = rows.head()
    rows.accessor.get = lambda config: head  # type: ignore[method-assign]
    with refused(CheckpointLineageIntegrityError, UNADDRESSABLE):
        find_checkpoint_before_message(rows.accessor, head, "a")


def test_the_scan_limit_fails_closed(rows: Rows) -> None:
    rows.put("00", None, step=-1)
    rows.put("01", "00")
    for number in range(2, 8):
        rows.put(f"{number:02}", f"{number - 1:02}", ("a",))
    assert found(rows.accessor, "a", max_depth=6) == "01"
    for finder in (find_checkpoint_before_message, find_base_before_message):
        with refused(
            CheckpointLineageIntegrityError, "Checkpoint lineage exceeded the scan limit (5)"
        ):
            finder(rows.accessor, rows.head(), "a", max_depth=5)
    assert rows.accessor.materialised["history"] == 0


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        ("update", {"runtime_run_duration": {"run_ids": ["r"]}}),
        ("update", {"runtime_interrupt_title": {"title": "t"}}),
        ("update", {"goal_setter": {"goal": {"objective": "o"}}}),
        ("loop", {"runtime_run_duration": {"run_ids": ["r"]}}),
    ],
)
def test_rows_beside_the_conversation_are_stepped_over(
    rows: Rows, source: str, writes: dict[str, Any]
) -> None:
    rows.put("00", None, step=-1)
    rows.put("01", "00")
    for number in range(2, 7):
        rows.put(f"{number:02}", f"{number - 1:02}", source=source, writes=writes)
    rows.put("07", "06", ("a",))
    rows.put("08", "07", ("a",))
    # They have a budget of their own.
    assert found(rows.accessor, "a", max_depth=5) == "01"
    with pytest.raises(CheckpointLineageIntegrityError, match="scan limit"):
        found(rows.accessor, "a", max_depth=4)


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        ("update", {"editor": {"messages": []}}),
        ("update", {"editor": {"goal": None, "todos": []}}),
        ("update", {"editor": {}}),
        ("update", {}),
        ("loop", {"agent": {"goal": None}}),
        ("update", None),
    ],
)
def test_what_the_conversation_wrote_is_looked_at(rows: Rows, source: str, writes: Any) -> None:
    rows.put("01", None, step=-1)
    rows.put("02", "01", source=source, writes=writes)
    rows.put("03", "02", ("a",))
    assert found(rows.accessor, "a") == "02"


def test_a_root_that_holds_the_message_has_nothing_before_it(rows: Rows) -> None:
    """An imported or branched thread: its first checkpoint has a step of any number."""
    rows.put("01", None, ("a",), source="branch", step=7)
    rows.put("02", "01", ("a", "b"))
    assert found(rows.accessor, "a") is None
    assert find_base_before_message(rows.accessor, rows.head(), "a") is None
    assert rows.accessor.materialised["history"] == 0


def test_a_second_first_checkpoint_is_a_root_too(rows: Rows) -> None:
    rows.put("01", None, ())
    rows.put("02", None, ("a",), source="input", step=-1)
    assert found(rows.accessor, "a") is None


def test_a_missing_link_is_told_from_a_root_and_opens_the_history(rows: Rows) -> None:
    rows.put("01", None, step=-1)
    rows.put("02", "01")
    rows.put("03", None, ("a",), step=2)
    rows.put("04", "03", ("a",), step=3)
    with refused(
        CheckpointParentMissingError, "Checkpoint lineage ended before the target message"
    ):
        found(rows.accessor, "a")
    assert identity(find_base_before_message(rows.accessor, rows.head(), "a")) == "02"


async def test_a_missing_link_opens_the_history_on_the_async_face_too(rows: Rows) -> None:
    rows.put("01", None)
    rows.put("02", None, ("a",), step=2)
    head = await rows.accessor.graph.aget_state(THREAD)
    with pytest.raises(CheckpointParentMissingError):
        await afind_checkpoint_before_message(rows.accessor, head, "a")
    assert identity(await afind_base_before_message(rows.accessor, head, "a")) == "01"


def test_a_history_that_is_too_short_fails_closed(rows: Rows) -> None:
    rows.put("01", None)
    rows.put("02", None, ("a",), step=2)
    rows.put("03", "02", ("a",))
    assert identity(find_base_before_message(rows.accessor, rows.head(), "a", max_depth=3)) == "01"
    for limit in (1, 2):
        with refused(
            CheckpointLineageIntegrityError,
            f"Could not locate the target message in recent checkpoint history (limit={limit})",
        ):
            find_base_before_message(rows.accessor, rows.head(), "a", max_depth=limit)


def test_what_is_newer_than_the_head_is_not_looked_at(rows: Rows) -> None:
    rows.put("01", None)
    rows.put("02", None, ("a",), step=2)
    head = rows.head()
    rows.put("03", "02", (), step=3)
    rows.put("04", "03", ("a",), step=4)
    assert identity(find_base_before_message(rows.accessor, head, "a")) == "01"
    with pytest.raises(CheckpointLineageIntegrityError, match="limit=2"):
        find_base_before_message(rows.accessor, head, "a", max_depth=2)


def test_a_full_process_walks_into_no_delta_ancestor(rows: Rows) -> None:
    rows.put("01", None, deerflow_checkpoint_channel_mode="delta")
    rows.put("02", "01", ("a",))
    with pytest.raises(CheckpointModeMismatchError):
        found(rows.accessor, "a")


def test_errors_survive_a_process_boundary() -> None:
    rows = Rows()
    rows.put("02", "01", ("a",))
    with pytest.raises(CheckpointLineageIntegrityError) as caught:
        found(rows.accessor, "a")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert again.identity == caught.value.identity == ("1", "", "01")


# By time.


def test_by_time_the_settled_checkpoint_before_the_first_with_the_message_is_taken(
    rows: Rows,
) -> None:
    rows.put("01", None)
    rows.put("02", None, source="update", writes={"runtime_run_duration": {}})
    rows.put("03", None, ("a",))
    rows.put("04", None)
    states = rows.accessor.history(THREAD)
    base, seen = find_checkpoint_before_message_chronologically(states, "a")
    assert (identity(base), seen) == ("01", True)
    assert find_checkpoint_before_message_chronologically(states[1:2], "a") == (None, True)
    assert find_checkpoint_before_message_chronologically(states, "b") == (None, False)


@both_modes
def test_by_time_a_turn_under_way_is_passed_over(mode: CheckpointChannelMode) -> None:
    accessor = accessor_of(mode, InMemorySaver())
    (tail, _) = converse(accessor, 2)
    base, _ = find_checkpoint_before_message_chronologically(accessor.history(THREAD), "plan-1")
    assert identity(base) == identity_in(tail)


async def test_a_degraded_reader_without_tasks_or_graph_will_do(rows: Rows) -> None:
    rows.put("01", None)
    rows.put("02", "01", ("a",))
    raw = RawCheckpointReadAccessor(rows.saver)
    base = await afind_checkpoint_before_message(raw, await raw.aget(THREAD), "a")
    assert identity(base) == "01"
    rows.put("03", None, ("a",), step=3)
    assert identity(await afind_base_before_message(raw, await raw.aget(THREAD), "a")) == "01"
