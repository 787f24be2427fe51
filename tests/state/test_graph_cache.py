from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from deerflow_saver.channel_mode import CheckpointSettings
from deerflow_saver.state import CompiledGraphCache, resolve_checkpoint_graph_cache_max


class Builder:
    """Counts what it builds."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def __call__(self, name: str) -> Any:
        def build() -> Any:
            self.built.append(name)
            return object()

        return build


def test_a_graph_is_built_once_and_kept() -> None:
    cache, build = CompiledGraphCache(), Builder()
    assert cache.get("a", build("a")) is cache.get("a", build("a"))
    assert build.built == ["a"]


def test_the_graph_unused_longest_goes_first() -> None:
    cache, build = CompiledGraphCache(2), Builder()
    for name in ("a", "b", "a", "c", "a", "b"):
        cache.get(name, build(name))
    assert build.built == ["a", "b", "c", "b"]
    assert len(cache) == 2


def test_a_changed_cap_takes_effect_at_the_next_build() -> None:
    settings = SimpleNamespace(accessor_graph_max=3)
    cache, build = CompiledGraphCache(lambda: settings.accessor_graph_max), Builder()
    for name in "abc":
        cache.get(name, build(name))
    settings.accessor_graph_max = 1
    cache.get("d", build("d"))
    assert len(cache) == 1
    settings.accessor_graph_max = "many"
    for name in "abc":
        cache.get(name, build(name))
    assert len(cache) == 4


def test_a_graph_made_from_something_else_is_built_again() -> None:
    cache, build = CompiledGraphCache(), Builder()
    one, other = object(), object()
    first = cache.get("a", build("a"), witnesses=(one,))
    assert cache.get("a", build("a"), witnesses=(one,)) is first
    assert cache.get("a", build("a"), witnesses=(other,)) is not first
    assert build.built == ["a", "a"]
    assert len(cache) == 1


def test_many_threads_wait_for_one_build() -> None:
    cache, asked, go = CompiledGraphCache(), threading.Semaphore(0), threading.Event()
    built: list[object] = []

    def build() -> object:
        go.wait()
        built.append(object())
        return built[-1]

    def ask() -> object:
        asked.release()
        return cache.get("a", build)

    with ThreadPoolExecutor(8) as pool:
        graphs = [pool.submit(ask) for _ in range(8)]
        for _ in range(8):
            asked.acquire()
        go.set()
        assert {id(graph.result()) for graph in graphs} == {id(built[0])}
    assert len(built) == 1


async def test_tasks_wait_for_one_build_and_the_loop_goes_on() -> None:
    cache, go = CompiledGraphCache(), threading.Event()
    built: list[object] = []

    def build() -> object:
        go.wait()
        built.append(object())
        return built[-1]

    waiting = [asyncio.create_task(cache.aget("a", build)) for _ in range(4)]
    await asyncio.sleep(0)
    go.set()
    graphs = await asyncio.gather(*waiting)
    assert set(map(id, graphs)) == {id(built[0])}
    assert len(built) == 1
    assert await cache.aget("a", build) is built[0]


def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    cache, build = CompiledGraphCache(), Builder()

    def fail() -> Any:
        raise LookupError("no model")

    with pytest.raises(LookupError, match="no model"):
        cache.get("a", fail)
    assert cache.get("a", build("a")) is not None
    assert build.built == ["a"]


def test_a_build_that_waits_for_itself_is_told() -> None:
    cache = CompiledGraphCache()
    with pytest.raises(RuntimeError, match="asks for that graph itself"):
        cache.get("a", lambda: cache.get("a", object))
    assert cache.get("b", lambda: cache.get("c", object)) is not None


def test_clear_keeps_none() -> None:
    cache, build = CompiledGraphCache(), Builder()
    cache.get("a", build("a"))
    cache.clear()
    cache.get("a", build("a"))
    assert build.built == ["a", "a"]


def test_a_cap_that_cannot_be_told_is_an_error_of_that_build_and_blocks_nobody() -> None:
    settings: Any = SimpleNamespace()
    cache = CompiledGraphCache(lambda: settings.accessor_graph_max)
    for _ in range(2):
        with pytest.raises(AttributeError):
            cache.get("a", object)
    settings.accessor_graph_max = 1
    assert cache.get("a", object) is cache.get("a", object)


def test_clear_keeps_no_graph_that_is_being_built_either() -> None:
    cache = CompiledGraphCache()

    def build() -> object:
        cache.clear()
        return object()

    assert cache.get("a", build) is not None
    assert len(cache) == 0


@pytest.mark.parametrize("value", [0, -1, True, "8", None, 2.0])
def test_what_is_no_cap_means_the_default(value: Any) -> None:
    assert resolve_checkpoint_graph_cache_max(SimpleNamespace(accessor_graph_max=value)) == 64
    nested = SimpleNamespace(checkpoint_graph_cache=SimpleNamespace(accessor_graph_max=value))
    assert resolve_checkpoint_graph_cache_max(nested, "accessor_graph_max", 5) == 5


def test_a_cap_is_found_in_settings_and_in_sections() -> None:
    assert resolve_checkpoint_graph_cache_max(CheckpointSettings(accessor_graph_max=7)) == 7
    nested = SimpleNamespace(checkpoint_graph_cache=SimpleNamespace(accessor_graph_max=9))
    assert resolve_checkpoint_graph_cache_max(nested) == 9
    assert resolve_checkpoint_graph_cache_max(None) == 64
