"""Rows that are missing, come back, or are changed by somebody else."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from support.threads import CHANNEL, Line


@pytest.fixture(params=["storage", "foreign"])
def inner(request: pytest.FixtureRequest) -> InMemorySaver:
    """LangGraph's own saver, and one whose methods are not LangGraph's."""
    if request.param == "storage":
        return InMemorySaver()

    class Foreign(InMemorySaver):
        def get_tuple(self, config: Any) -> Any:
            return super().get_tuple(config)

        def get_delta_channel_history(self, **kwargs: Any) -> Any:
            return super().get_delta_channel_history(**kwargs)

    return Foreign()


def test_a_history_that_ended_at_a_missing_row_is_never_kept(inner: Any) -> None:
    line = Line(inner)
    line.grow(12)
    saver = CachedHistorySaver(inner)
    rows = inner.storage[line.thread_id][""]
    taken = rows.pop(line.ids[4])
    truncated = line.history(saver)
    assert truncated == line.history(inner)
    assert len(truncated[CHANNEL]["writes"]) == 6
    for _ in range(3):
        assert line.history(saver) == line.history(inner)
    rows[line.ids[4]] = taken
    assert line.history(saver) == line.history(inner)
    assert len(line.history(saver)[CHANNEL]["writes"]) == 11


def test_a_checkpoint_that_does_not_exist_yet_is_not_remembered_as_empty(inner: Any) -> None:
    line = Line(inner)
    line.grow(3)
    saver = CachedHistorySaver(inner)
    arguments = line.put_arguments()
    cid = arguments[1]["id"]
    assert line.history(saver, cid) == {CHANNEL: {"writes": []}}
    line.write(["w"])
    inner.put(*arguments)
    assert line.history(saver, cid) == line.history(inner, cid)
    assert len(line.history(saver, cid)[CHANNEL]["writes"]) == 3


def test_purging_makes_a_rewritten_thread_be_read_again(inner: Any) -> None:
    line = Line(CachedHistorySaver(inner))
    line.grow(6)
    line.history()
    inner.writes.pop((line.thread_id, "", line.ids[2]))
    line.saver.purge_thread(line.thread_id)
    assert line.history() == line.history(inner)
    inner.writes.pop((line.thread_id, "", line.ids[3]))
    line.saver.cache_clear()
    assert line.history() == line.history(inner)


def test_another_processes_turns_are_seen(inner: Any) -> None:
    ours, theirs = CachedHistorySaver(inner), CachedHistorySaver(inner)
    line = Line(ours)
    line.grow(4)
    for turn in range(6):
        line.saver = theirs if turn % 2 else ours
        other = ours if turn % 2 else theirs
        line.saver.get_tuple(Line(inner, line.thread_id).config())
        line.grow(3)
        other.get_tuple(line.config())
        assert line.history(ours) == line.history(inner) == line.history(theirs)


def test_another_processes_writes_on_our_head_are_seen_when_the_head_is_read(inner: Any) -> None:
    ours, theirs = CachedHistorySaver(inner), CachedHistorySaver(inner)
    line = Line(ours)
    line.grow(4)
    line.history()
    foreign = Line(theirs, line.thread_id, ids=list(line.ids))
    foreign.write(["theirs"])
    ours.get_tuple(Line(inner, line.thread_id).config())
    line.grow(3)
    assert line.history() == line.history(inner)
    assert ["theirs"] in [value for _, _, value in line.history()[CHANNEL]["writes"]]


def test_values_that_no_longer_decode_raise_as_the_saver_does(inner: Any) -> None:
    line = Line(inner)
    line.grow(4)
    saver = CachedHistorySaver(inner)
    slot = inner.writes[line.thread_id, "", line.ids[1]]
    (name, (task, channel, _, path)) = next(iter(slot.items()))
    slot[name] = (task, channel, ("msgpack", b"\xc1garbage"), path)
    with pytest.raises(Exception, match=r".*") as raw:
        line.history(inner)
    with pytest.raises(type(raw.value)):
        line.history(saver)


def test_a_failing_cache_ends_in_the_savers_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inner = InMemorySaver()
    line = Line(CachedHistorySaver(inner))
    line.grow(6)
    line.history()
    monkeypatch.setattr(
        "deerflow_saver.history.segment.Segment.take", lambda *_: (_ for _ in ()).throw(KeyError)
    )
    with caplog.at_level(logging.ERROR, "deerflow_saver"):
        assert line.history() == line.history(inner)
    assert line.saver.cache_info().errors == 1
    assert "the wrapped saver answers" in caplog.text


def test_a_stored_row_is_not_lost_when_learning_from_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = InMemorySaver()
    line = Line(CachedHistorySaver(inner))
    line.grow(3)
    monkeypatch.setattr(
        "deerflow_saver.history.chain.Chain.born", lambda *_, **__: (_ for _ in ()).throw(KeyError)
    )
    monkeypatch.setattr(
        "deerflow_saver.history.chain.Chain.seen", lambda *_, **__: (_ for _ in ()).throw(KeyError)
    )
    line.grow(2)
    assert line.saver.get_tuple(line.config()).checkpoint["id"] == line.ids[-1]
    assert line.history() == line.history(inner)
    assert line.saver.cache_info().errors >= 2
