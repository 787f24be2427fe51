"""When nothing is restored, what is refused, and whose rows are deleted."""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import pickle
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deerflow_saver import CachedHistorySaver
from deerflow_saver.errors import CheckpointModeMismatchError, InvalidConfigError
from deerflow_saver.state import (
    CheckpointStateAccessor,
    RollbackError,
    RollbackPoint,
    acapture_rollback_point,
    capture_rollback_point,
    restore,
)
from support.agent_in_modes import Agent
from support.ciphers import Rotation
from support.modes import thread
from support.rollback_threads import RUN, TURN, Stopping, cancel, make, shown
from support.savers import SaverCase, Storage, every_sync_case


def left_by_a_run(mode: str = "delta", head: str = "clean") -> tuple[Stopping, Any]:
    agent = Stopping(mode, CachedHistorySaver(InMemorySaver()))
    make(agent, head)
    point = capture_rollback_point(agent.accessor, thread())
    cancel(agent, TURN, "after")
    return agent, point


# -- nothing is restored --------------------------------------------------------------------------


def test_without_a_saver_a_point_or_a_capture_nothing_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, point = left_by_a_run()
    left = shown(agent)
    bare = CheckpointStateAccessor(agent.graph, None, "delta")
    nowhere = dataclasses.replace(point, config={"configurable": {"thread_id": "1"}})
    caplog.set_level(logging.INFO, "deerflow_saver")
    assert not restore(bare, point, run_id="r")
    assert not restore(None, point, run_id="r")
    assert not restore(agent.accessor, None, thread_id="1", snapshot_capture_failed=True)
    assert not restore(agent.accessor, nowhere, run_id="r")
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING", "WARNING"]
    assert "could not be captured" in caplog.text
    assert shown(agent) == left
    assert capture_rollback_point(bare, thread()) is None


class Vague(JsonPlusSerializer):
    """A value is stored in another way each time."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return f"vague {os.urandom(4).hex()}", pickle.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return pickle.loads(data[1])


@pytest.mark.parametrize("mode", ["full", "delta"])
@pytest.mark.parametrize("serde", [EncryptedSerializer(Rotation()), Vague()], ids=["cipher", "own"])
def test_a_thread_that_is_as_it_was_stays_so_however_its_values_are_stored(
    mode: str, serde: Any
) -> None:
    agent = Stopping(mode, CachedHistorySaver(InMemorySaver(serde=serde)))
    make(agent, "interrupted")
    point, before = capture_rollback_point(agent.accessor, thread()), shown(agent)
    waiting = agent.accessor.get(thread())
    assert restore(agent.accessor, point)
    assert agent.accessor.get(thread()) == waiting
    cancel(agent, TURN, "after")
    assert restore(agent.accessor, point)
    restored = agent.accessor.get(thread())
    assert restored.config != waiting.config
    assert restore(agent.accessor, point)
    assert agent.accessor.get(thread()) == restored
    assert shown(agent) == before


async def test_nothing_is_captured_of_an_empty_thread() -> None:
    agent = Stopping("delta", InMemorySaver())
    assert capture_rollback_point(agent.accessor, thread()) is None
    assert await acapture_rollback_point(agent.accessor, thread()) is None


def test_a_point_is_frozen_and_can_be_kept_in_another_process() -> None:
    agent, point = left_by_a_run(head="interrupted")
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.metadata = {}
    place = point.config["configurable"]
    assert set(place) == {"thread_id", "checkpoint_ns", "checkpoint_id"}
    assert place["checkpoint_ns"] == ""
    assert restore(agent.accessor, pickle.loads(pickle.dumps(point)))
    assert [asked.value for asked in agent.accessor.get(thread()).interrupts] == ["second?"]


def test_a_head_that_the_config_selects_is_not_what_is_captured() -> None:
    agent, _ = left_by_a_run()
    older = agent.accessor.history(thread())[-1].config
    point = capture_rollback_point(agent.accessor, older)
    assert point is not None
    head = agent.accessor.get(thread()).config["configurable"]["checkpoint_id"]
    assert point.checkpoint_id == head != older["configurable"]["checkpoint_id"]


# -- what is refused ------------------------------------------------------------------------------


def refused(agent: Stopping, point: Any, **options: Any) -> str:
    """The text of the refusal; nothing is stored."""
    left, rows = shown(agent), len(list(agent.accessor.checkpointer.list(thread())))
    with pytest.raises(RollbackError) as caught:
        restore(agent.accessor, point, **options)
    assert len(list(agent.accessor.checkpointer.list(thread()))) == rows
    assert shown(agent) == left
    assert caught.value.thread_id == "1"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.checkpoint_id) == (str(caught.value), caught.value.checkpoint_id)
    return str(caught.value)


@pytest.mark.parametrize(
    ("pending", "text"),
    [
        (("t", "log"), "Run r rollback failed: pending_write is not a 3-tuple: ('t', 'log')"),
        ("abc", "Run r rollback failed: pending_write is not a 3-tuple: 'abc'"),
        (
            ("t", 7, "x"),
            "Run r rollback failed: pending_write has non-string channel: task_id=t, channel=7",
        ),
    ],
)
def test_malformed_pending_writes_are_refused_with_the_reference_text(
    pending: Any, text: str
) -> None:
    agent, point = left_by_a_run()
    point = dataclasses.replace(point, pending_writes=(("t", "log", ["x"]), pending))
    assert refused(agent, point, run_id="r") == text


def test_a_graph_that_shows_no_channels_is_refused_with_the_reference_text() -> None:
    agent, point = left_by_a_run()
    agent.accessor = CheckpointStateAccessor(object(), agent.accessor.checkpointer, "delta")
    with pytest.raises(RollbackError) as caught:
        restore(agent.accessor, point, run_id="r")
    assert str(caught.value) == "Run r could not inspect the state schema for rollback"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "returned invalid config: expected dict"),
        ({"configurable": 3}, "returned invalid config payload"),
        ({"configurable": {"thread_id": "1"}}, "did not return checkpoint_id"),
    ],
)
def test_a_saver_that_does_not_say_what_it_stored_is_refused_with_the_reference_text(
    answer: Any, text: str
) -> None:
    class Mute(InMemorySaver):
        mute = False

        def put(self, *args: Any, **kwargs: Any) -> Any:
            config = super().put(*args, **kwargs)
            return answer if self.mute else config

    saver = Mute()
    agent = Stopping("delta", saver)
    make(agent, "clean")
    point = capture_rollback_point(agent.accessor, thread())
    cancel(agent, TURN, "after")
    saver.mute = True
    with pytest.raises(RollbackError) as caught:
        restore(agent.accessor, point, run_id=RUN)
    assert str(caught.value) == f"Run {RUN} rollback restore {text}"


def test_a_checkpoint_that_was_deleted_meanwhile_is_refused() -> None:
    agent, point = left_by_a_run()
    agent.accessor.checkpointer.delete_thread("1")
    assert "is not stored any more" in refused(agent, point)
    agent.graph.invoke(TURN, thread())
    assert "is not stored any more" in refused(agent, point)


def test_a_turn_that_another_run_has_added_since_is_not_hidden() -> None:
    agent, point = left_by_a_run()
    other = {**thread(), "metadata": {"run_id": "other"}}
    agent.graph.invoke({"log": ["theirs"], "do": "x"}, other)
    assert "run other has made it" in refused(agent, point, run_id=RUN)
    assert restore(agent.accessor, point, run_id="other")


def test_a_graph_that_lacks_a_delta_channel_of_the_thread_is_refused() -> None:
    agent, point = left_by_a_run()
    del agent.accessor.graph.channels["facts"]
    with pytest.raises(RollbackError, match="does not have the thread's delta channel facts"):
        restore(agent.accessor, point)


def test_a_delta_thread_is_neither_captured_nor_restored_in_full_mode() -> None:
    agent, point = left_by_a_run()
    full = Agent("full", agent.accessor.checkpointer).accessor
    with pytest.raises(CheckpointModeMismatchError):
        capture_rollback_point(full, thread())
    left = shown(agent)
    with pytest.raises(CheckpointModeMismatchError):
        restore(full, point)
    assert shown(agent) == left


def test_a_config_that_names_no_thread_or_another_is_refused() -> None:
    agent, point = left_by_a_run()
    with pytest.raises(InvalidConfigError, match="must name a thread"):
        capture_rollback_point(agent.accessor, {"configurable": {}})
    with pytest.raises(InvalidConfigError, match="subgraph's namespace"):
        capture_rollback_point(agent.accessor, thread(checkpoint_ns="inner:1"))
    with pytest.raises(InvalidConfigError, match="needs the thread_id"):
        restore(agent.accessor, None)
    with pytest.raises(InvalidConfigError, match="not of thread '2'"):
        restore(agent.accessor, point, thread_id="2")


# -- whose rows are deleted -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "delta"])
@every_sync_case
def test_only_a_thread_that_is_all_the_runs_own_is_deleted(
    case: SaverCase, storage: Storage, mode: str
) -> None:
    """Whoever has written to it since, with another id or none, keeps all of it."""
    with case.open(storage) as saver:
        agent = Stopping(mode, CachedHistorySaver(saver))
        agent.graph.invoke({"log": ["kept"], "do": "x"}, thread("2"))
        assert restore(agent.accessor, None, thread_id="1", run_id=RUN), "nothing was stored"
        cancel(agent, TURN, "after")
        assert "is of run the run" in refused(agent, None, thread_id="1", run_id="another")
        assert "is of run the run" in refused(agent, None, thread_id="1")
        agent.graph.invoke(TURN, {**thread(), "metadata": {"run_id": "another"}})
        assert "is of run another" in refused(agent, None, thread_id="1", run_id=RUN)
        saver.delete_thread("1")
        agent.accessor.checkpointer.purge_thread("1")
        cancel(agent, TURN, "after")
        agent.accessor.update(thread(), {"title": "by hand"}, as_node="close")
        assert "tells no run" in refused(agent, None, thread_id="1", run_id=RUN)
        saver.delete_thread("1")
        agent.accessor.checkpointer.purge_thread("1")
        cancel(agent, TURN, "after")
        assert restore(agent.accessor, None, thread_id="1", run_id=RUN)
        assert list(saver.list(thread())) == []
        assert not agent.accessor.get(thread()).values
        out = agent.graph.invoke({"log": ["anew"], "do": "x"}, thread())
        assert out["log"][0] == "anew"
        assert agent.accessor.get(thread("2")).values["log"][0] == "kept"
    with case.open(storage) as saver:
        assert Stopping(mode, saver).accessor.get(thread()).values["log"] == out["log"]


def test_an_id_in_the_configurable_part_is_known_as_well() -> None:
    agent = Stopping("delta", InMemorySaver())
    agent.graph.invoke(TURN, thread(run_id=RUN))
    assert restore(agent.accessor, None, thread_id="1", run_id=RUN)
    assert list(agent.accessor.checkpointer.list(thread())) == []


def test_what_is_pending_is_copied_from_nobody() -> None:
    """The point is not changed by restoring it, so it can be restored again."""
    agent, point = left_by_a_run(head="interrupted")
    kept: RollbackPoint = copy.deepcopy(point)
    assert restore(agent.accessor, point)
    assert point == kept
