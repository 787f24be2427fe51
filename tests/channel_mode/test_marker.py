from __future__ import annotations

import copy
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver import channel_mode as cm
from deerflow_saver.channel_mode.marker import absent_channels
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.guard.policy import ALLOW_KEY
from support.modes import compiled, thread

INTERNAL = "__deerflow_checkpoint_channel_mode"
MARKER = "deerflow_checkpoint_channel_mode"


def row(metadata: Any = None, values: Any = None, versions: Any = None) -> Any:
    checkpoint: Any = {"id": "1", "channel_values": values or {}, "channel_versions": versions}
    return CheckpointTuple(thread(), checkpoint, metadata)


def test_the_keys_are_the_documented_ones() -> None:
    assert INTERNAL == cm.INTERNAL_CHECKPOINT_MODE_KEY
    assert MARKER == cm.CHECKPOINT_MODE_METADATA_KEY


def test_delta_writes_both_keys_in_place() -> None:
    config: Any = {}
    cm.inject_checkpoint_mode(config, "delta")
    assert config == {"configurable": {INTERNAL: "delta"}, "metadata": {MARKER: "delta"}}


def test_full_writes_the_internal_key_and_removes_every_mark() -> None:
    config: Any = {"configurable": {INTERNAL: "delta", MARKER: "delta"}, "metadata": {MARKER: "x"}}
    cm.inject_checkpoint_mode(config, "full")
    assert config == {"configurable": {INTERNAL: "full"}, "metadata": {}}


def test_sections_that_are_none_or_read_only_are_replaced() -> None:
    config: Any = {"configurable": MappingProxyType({"thread_id": "1"}), "metadata": None}
    cm.inject_checkpoint_mode(config, "delta")
    assert config["configurable"] == {"thread_id": "1", INTERNAL: "delta"}


def test_the_copying_form_leaves_the_callers_dicts_as_they_are() -> None:
    config: Any = {**thread(), "metadata": {"user": "u"}, "tags": ["t"]}
    before = copy.deepcopy(config)
    made: Any = cm.with_checkpoint_mode(config, "delta")
    assert config == before
    assert made["configurable"] == {"thread_id": "1", INTERNAL: "delta"}
    assert made["metadata"] == {"user": "u", MARKER: "delta"}
    assert made["tags"] is config["tags"]


def test_no_mode_is_injected_that_is_none() -> None:
    config: Any = {}
    with pytest.raises(InvalidConfigError):
        cm.inject_checkpoint_mode(config, "both")  # type: ignore[arg-type]
    assert config == {}


def test_what_a_request_forges_is_discarded() -> None:
    forged: Any = {
        "configurable": {"thread_id": "1", INTERNAL: "delta", MARKER: "delta", ALLOW_KEY: "me"},
        "context": {INTERNAL: "delta", "user": "u", ALLOW_KEY: True},
        "metadata": {MARKER: "delta"},
    }
    before = copy.deepcopy(forged)
    assert cm.discard_internal_mode(forged) == {
        "configurable": {"thread_id": "1"},
        "context": {"user": "u"},
        "metadata": {},
    }
    assert forged == before


STORED = (MARKER, "deerflow_delta_channels", "counters_since_delta_snapshot")


@pytest.mark.parametrize("section", ["configurable", "metadata"])
@pytest.mark.parametrize("key", STORED)
def test_no_config_may_claim_what_savers_would_store_as_a_mark(key: str, section: str) -> None:
    forged: Any = {section: {key: "delta"}}
    for mode, marks in (("full", {}), ("delta", {MARKER: "delta"})):
        made = cm.with_checkpoint_mode(forged, mode)  # type: ignore[arg-type]
        assert made == {"configurable": {INTERNAL: mode}, "metadata": marks}
    assert cm.discard_internal_mode(forged) == {section: {}}


@pytest.mark.parametrize(
    ("metadata", "delta"),
    [
        (None, False),
        ({}, False),
        ({MARKER: "delta"}, True),
        ({MARKER: "full"}, False),
        ({"counters_since_delta_snapshot": {"messages": (1, 1)}}, True),
        ({"counters_since_delta_snapshot": {"anything": (1, 1)}}, True),
        ({"counters_since_delta_snapshot": {}}, False),
        ({"deerflow_delta_channels": ["log"]}, True),
        ({"deerflow_delta_channels": []}, False),
        ({"step": -2}, True),
        ({"step": 3, "source": "loop"}, False),
        ("delta", False),
    ],
)
def test_metadata_tells_by_marker_counters_stamp_or_anchor(metadata: Any, delta: bool) -> None:
    assert cm.checkpoint_metadata_uses_delta(metadata) is delta
    assert cm.checkpoint_tuple_uses_delta(row(metadata)) is delta
    assert cm.state_snapshot_uses_delta(SimpleNamespace(metadata=metadata)) is delta


def test_a_stored_snapshot_tells() -> None:
    values = {"log": _DeltaSnapshot(["a"])}
    assert cm.checkpoint_tuple_uses_delta(row({}, values, {"log": 1}))
    assert cm.state_snapshot_uses_delta(SimpleNamespace(metadata={}, values=values))


def test_nothing_tells_nothing() -> None:
    assert not cm.checkpoint_tuple_uses_delta(None)
    assert not cm.state_snapshot_uses_delta(None)
    assert not cm.checkpoint_tuple_uses_delta(SimpleNamespace())
    assert not cm.state_snapshot_uses_delta(SimpleNamespace())


def test_a_versioned_channel_without_a_value_tells_unless_it_is_known_to_store_none() -> None:
    versions = {"log": 2, "hint": 2, "__start__": 1, "branch:to:work": 1, "title": 2}
    made = row({}, {"title": None}, versions)
    channels = compiled("full").channels
    assert cm.checkpoint_tuple_uses_delta(made)
    assert cm.checkpoint_tuple_uses_delta(made, channels)
    assert absent_channels(made, channels) == (("log",), ())
    settled = row({}, {"title": "t", "log": []}, versions)
    assert not cm.checkpoint_tuple_uses_delta(settled, channels)
    assert absent_channels(settled) == ((), ("hint",))
    assert absent_channels(row({}, {}, {"other": 1, "title": 1}), channels)[1] == ("other", "title")


def test_the_mode_of_the_run_around_is_hidden_and_comes_back() -> None:
    around: Any = {
        "tags": ["t"],
        "metadata": {MARKER: "delta", "user": "u"},
        "configurable": {INTERNAL: "delta", "thread_id": "outer"},
    }
    token = var_child_runnable_config.set(around)
    try:
        with cm.ambient_mode_hidden():
            assert var_child_runnable_config.get() == {
                "tags": ["t"],
                "metadata": {"user": "u"},
                "configurable": {"thread_id": "outer"},
            }
        assert var_child_runnable_config.get() is around
    finally:
        var_child_runnable_config.reset(token)


def test_an_explicit_delta_mark_wins_over_a_full_run_around_it() -> None:
    saver = InMemorySaver()
    token = var_child_runnable_config.set(cm.with_checkpoint_mode(thread("outer"), "full"))
    try:
        for _ in range(2):  # some releases before 1.2.9 forget the mark of a thread's first update
            compiled("delta", saver).update_state(
                cm.with_checkpoint_mode(thread("inner"), "delta"), {"log": ["a"]}, "work"
            )
    finally:
        var_child_runnable_config.reset(token)
    stored = saver.get_tuple(thread("inner"))
    assert stored is not None
    assert cm.checkpoint_metadata_uses_delta({MARKER: stored.metadata[MARKER]})  # type: ignore[typeddict-item]
