"""What cells are made of: threads, counters, the alternative, digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver._probe import traits_of
from deerflow_saver.bench.alternative import AncestorCache
from deerflow_saver.bench.case import NEVER
from deerflow_saver.bench.conversation import CHANNEL, Kind, Thread, build
from deerflow_saver.bench.digests import canonical_messages_digest
from deerflow_saver.bench.errors import safe_error
from deerflow_saver.bench.face import Face
from deerflow_saver.bench.stored import StoredLine
from deerflow_saver.cli.counting import count_on, counted

Saver = BaseCheckpointSaver[Any]
CONFIG: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def opened(tmp_path: Path, counts: Counter[str]) -> Iterator[Saver]:
    path = str(tmp_path / "checkpoints.sqlite")
    with counted(SqliteSaver).from_conn_string(path) as saver:
        count_on(saver, counts)
        yield saver


def thread(saver: Any, turns: int, frequency: int = NEVER, kind: Kind = "agent") -> Thread:
    grown = Thread(kind, build(kind, saver, frequency, 40), Face(), CONFIG, 40)
    grown.grow(turns)
    return grown


def history(saver: Saver, config: Any) -> Any:
    return saver.get_delta_channel_history(config=config, channels=[CHANNEL])


@pytest.mark.parametrize(("kind", "turns", "depth"), [("agent", 4, 20), ("append", 4, 4)])
def test_a_grown_thread_is_as_deep_as_its_turns(
    opened: Saver, kind: Kind, turns: int, depth: int
) -> None:
    thread(opened, turns, kind=kind)
    head = opened.get_tuple(CONFIG)
    assert len(history(opened, head.config)[CHANNEL]["writes"]) == depth


def test_a_turn_in_steady_state_makes_one_get_tuple_and_no_history_call(
    opened: Saver, counts: Counter[str]
) -> None:
    grown = thread(CachedHistorySaver(opened), 4, frequency=20)
    for _ in range(8):  # a snapshot falls among them
        counts.clear()
        grown.turn()
        assert counts["get_tuple"] == 1
        assert counts["get_delta_channel_history"] == 0


def test_messages_are_as_large_as_asked() -> None:
    saver = InMemorySaver()
    grown = thread(saver, 2)
    contents = [m.content for m in grown.graph.get_state(CONFIG).values[CHANNEL]]
    assert {len(content) for content in contents} == {40}
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize("frequency", [7, NEVER])
def test_a_stored_line_reads_as_the_thread_a_graph_would_have_stored(
    opened: Saver, frequency: int
) -> None:
    line = StoredLine(Face(), opened, CONFIG, frequency, 40)
    line.grow(20)
    other = InMemorySaver()
    grown = thread(other, 20, frequency, kind="append")
    for saver in (opened, CachedHistorySaver(opened)):
        state = build("append", saver, frequency, 40).get_state(CONFIG)
        assert state.values == grown.graph.get_state(CONFIG).values
        assert state.next == ()
    entry = history(opened, line.heads[-1])[CHANNEL]
    assert ("seed" in entry) == (frequency == 7)
    assert len(entry["writes"]) == (20 % 7 if frequency == 7 else 20)


def test_a_compacted_line_knows_what_came_after(opened: Saver) -> None:
    line = StoredLine(Face(), opened, CONFIG, 7, 40, compacted_every=5)
    line.grow(18)
    assert [message.id for message in line.messages] == [
        f"message-{number:08}" for number in (15, 16, 17, 18)
    ]
    for saver in (opened, CachedHistorySaver(opened)):
        graph = build("append", saver, 7, 40)
        assert graph.get_state(CONFIG).values[CHANNEL] == line.messages
        assert len(graph.get_state(line.heads[14]).values[CHANNEL]) == 5


def test_a_fork_of_a_stored_line_has_messages_of_its_own(opened: Saver) -> None:
    line = StoredLine(Face(), opened, CONFIG, NEVER, 40)
    line.grow(6)
    fork = line.fork(3)
    fork.grow(2, "-fork")
    graph = build("append", opened, NEVER, 40)
    ids = [m.id for m in graph.get_state(fork.heads[-1]).values[CHANNEL]]
    assert ids[-2:] == ["message-00000004-fork", "message-00000005-fork"]
    assert opened.get_tuple(fork.heads[1]).parent_config == line.heads[3]


def test_a_counting_saver_is_treated_as_the_saver_it_is(
    opened: Saver, counts: Counter[str], tmp_path: Path
) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "other.sqlite")) as plain:
        assert traits_of(opened).kind == traits_of(plain).kind == "storage"
        assert traits_of(opened).ordered == traits_of(plain).ordered
    opened.get_tuple(CONFIG)
    opened.get_tuple(CONFIG)
    assert counts == {"get_tuple": 2}


def test_a_second_saver_of_a_class_is_no_news_to_the_wrapper(counts: Counter[str]) -> None:
    first, second = counted(InMemorySaver)(), counted(InMemorySaver)()
    assert type(first) is type(second)
    count_on(first, counts)
    second.get_tuple(CONFIG)
    assert counts == {}
    first.get_tuple(CONFIG)
    assert counts == {"get_tuple": 1}


def test_calls_are_counted_on_a_saver_that_exists_already(counts: Counter[str]) -> None:
    saver = InMemorySaver()
    assert count_on(saver, counts)
    assert traits_of(saver).kind == "storage"
    saver.get_tuple(CONFIG)
    assert counts == {"get_tuple": 1}


async def test_calls_on_the_async_face_are_counted_once(
    counts: Counter[str], tmp_path: Path
) -> None:
    memory = counted(InMemorySaver)()
    count_on(memory, counts)
    await memory.aget_tuple(CONFIG)  # which calls get_tuple
    path = str(tmp_path / "checkpoints.sqlite")
    async with counted(AsyncSqliteSaver).from_conn_string(path) as saver:
        count_on(saver, counts)
        assert traits_of(saver).kind == "storage"
        await saver.aget_tuple(CONFIG)
        assert [row async for row in saver.alist(CONFIG)] == []
    assert counts == {"get_tuple": 2, "list": 1}


def test_the_alternative_gives_the_raw_savers_answers(opened: Saver) -> None:
    cache = AncestorCache(opened)
    thread(cache, 6, frequency=9)
    rows = list(opened.list(CONFIG))
    for row in [*rows, *reversed(rows)]:
        assert history(cache, row.config) == history(opened, row.config)


def test_the_alternative_reads_one_row_for_each_ancestor_it_does_not_know(
    opened: Saver, counts: Counter[str]
) -> None:
    thread(opened, 20)
    cache = AncestorCache(opened)
    heads = [row.config for row in opened.list(CONFIG)]
    counts.clear()
    history(cache, heads[3])  # eight levels by rows, the ninth by one walk
    assert counts == {"get_tuple": 10, "get_delta_channel_history": 1}
    counts.clear()
    history(cache, heads[3])
    assert counts == {"get_tuple": 1}
    counts.clear()
    history(cache, heads[0])
    assert counts == {"get_tuple": 4}


def test_the_alternative_keeps_no_more_than_its_entries(
    opened: Saver, counts: Counter[str]
) -> None:
    thread(opened, 30)
    cache = AncestorCache(opened)
    heads = [row.config for row in opened.list(CONFIG)]
    for head in reversed(heads):
        history(cache, head)
    counts.clear()
    history(cache, heads[-10])
    assert counts["get_tuple"] > 1


def test_the_digest_of_messages_sees_tool_calls_and_extra_arguments() -> None:
    call = {"name": "search", "args": {}, "id": "1", "type": "tool_call"}
    messages = [
        AIMessage("x", id="1"),
        AIMessage("x", id="1", tool_calls=[call]),
        AIMessage("x", id="1", additional_kwargs={"a": 1}),
        HumanMessage("x", id="1"),
        AIMessage("ä", id="1"),
        AIMessage("x", id="2"),
    ]
    assert len({canonical_messages_digest([message]) for message in messages}) == len(messages)
    assert canonical_messages_digest(messages) == canonical_messages_digest(list(messages))


def test_errors_tell_neither_the_home_nor_the_work_folder() -> None:
    error = OSError(f"{Path.home()}/secret and /tmp/work/x.sqlite")
    assert safe_error(error, "/tmp/work") == "OSError: <home>/secret and <work-dir>/x.sqlite"
    assert len(safe_error("x" * 5000)) == 2000
