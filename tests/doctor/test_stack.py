"""The stack of savers, and whether the cache in it is asked."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver, MemoryHistoryCache
from deerflow_saver.doctor.stack import consulted, described, kind_of, layers


class Walking(BaseCheckpointSaver[Any]):
    """Forwards rows, not histories."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._kept = inner

    def get_tuple(self, config: Any) -> Any:
        return self._kept.get_tuple(config)

    def put_writes(self, *args: Any) -> None:
        self._kept.put_writes(*args)


class Forwarding(Walking):
    def get_delta_channel_history(self, **given: Any) -> Any:
        return self._kept.get_delta_channel_history(**given)


class Slotted(Forwarding):
    __slots__ = ("held",)

    def __init__(self, inner: Any) -> None:
        super().__init__(None)
        self.held = inner


def _cached() -> CachedHistorySaver:
    return CachedHistorySaver(InMemorySaver())


def test_layers_are_found_through_proxies_attributes_and_slots() -> None:
    saver = Slotted(Walking(_cached()))
    assert [layer.name for layer in described(layers(saver))] == [
        "Slotted",
        "Walking",
        "CachedHistorySaver",
        "InMemorySaver",
    ]


def test_savers_that_hold_each_other_end() -> None:
    first = Walking(None)
    first._kept = Walking(first)
    assert len(layers(first)) == 2


def test_each_layer_says_how_it_answers_and_whether_it_takes_the_task_path() -> None:
    outer, cache, storage = described(layers(Walking(_cached())))
    assert (outer.role, outer.history, outer.task_path) == ("wrapper", "walk", "lost")
    assert (cache.role, cache.history, cache.task_path) == ("cache", "cached", "named")
    assert (storage.role, storage.history, storage.task_path) == ("storage", "own", "named")


def test_the_cache_gives_the_task_path_to_a_saver_that_takes_any_argument() -> None:
    below = described(layers(CachedHistorySaver(Walking(InMemorySaver()))))
    assert [layer.task_path for layer in below] == ["named", "passed", "named"]


@pytest.mark.parametrize(
    ("make", "answer", "reason"),
    [
        (_cached, "yes", "directly round LangGraph's own"),
        (lambda: CachedHistorySaver(Walking(InMemorySaver())), "yes", "one get_tuple"),
        (lambda: CachedHistorySaver(Forwarding(InMemorySaver())), "yes", "each checkpoint only"),
        (InMemorySaver, "no", "no CachedHistorySaver"),
        (lambda: Walking(_cached()), "no", "Walking above it walks row by row"),
        (lambda: Forwarding(_cached()), "unknown", "if Forwarding forwards"),
        (
            lambda: CachedHistorySaver(InMemorySaver(), MemoryHistoryCache(max_bytes=0)),
            "no",
            "budget is 0",
        ),
    ],
)
def test_whether_the_cache_is_asked(make: Any, answer: str, reason: str) -> None:
    found = consulted(layers(make()))
    assert found.answer == answer
    assert reason in found.reason


def test_the_kind_is_that_of_the_saver_at_the_bottom() -> None:
    assert kind_of(layers(Walking(_cached()))) == "memory"
    assert kind_of([Walking(None)]) == "other"


class Prickly(InMemorySaver):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_a_saver_whose_missing_attributes_raise_is_a_layer_like_any_other() -> None:
    saver = Prickly()
    assert layers(saver) == [saver]
