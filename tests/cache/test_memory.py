"""The in-process cache: budget, fairness, purging."""

from __future__ import annotations

from typing import Any

import pytest

from deerflow_saver import InvalidConfigError, MemoryHistoryCache
from deerflow_saver.cache.base import CACHE_METHODS, ChainKey, HistoryCache
from deerflow_saver.history.chain import Chain


def key(thread: str, prefix: str = "db", ns: str = "") -> ChainKey:
    return ChainKey(prefix, thread, ns)


class Sized(Chain):
    """A chain that says how large it is."""

    def __init__(self, size: int = 0) -> None:
        super().__init__({}, ordered=True, seeds_by_version=True)
        self.told = size

    @property
    def size(self) -> int:
        return self.told

    def trim(self, limit: int) -> None:
        self.told = min(self.told, limit)


def fill(cache: MemoryHistoryCache, thread: str, size: int) -> Chain:
    chain = cache.chain(key(thread), Sized)
    chain.told = size
    cache.measure(key(thread), chain)
    return chain


def test_the_protocol_is_kept() -> None:
    assert isinstance(MemoryHistoryCache(), HistoryCache)
    assert all(hasattr(MemoryHistoryCache(), name) for name in CACHE_METHODS)


@pytest.mark.parametrize("budget", [-1, 1.5, "64", True, None])
def test_a_budget_that_is_no_size_is_refused_by_name(budget: Any) -> None:
    with pytest.raises(InvalidConfigError, match="max_bytes"):
        MemoryHistoryCache(budget)


def test_zero_disables() -> None:
    assert not MemoryHistoryCache(0).enabled
    assert MemoryHistoryCache(1).enabled


def test_the_least_recently_used_thread_goes_first_and_is_closed() -> None:
    cache = MemoryHistoryCache(100)
    first, second = fill(cache, "a", 40), fill(cache, "b", 40)
    fill(cache, "a", 40)
    third = fill(cache, "c", 40)
    assert (first.closed, second.closed, third.closed) == (False, True, False)
    assert cache.usage() == {"bytes": 80, "max_bytes": 100, "entries": 2, "evictions": 1}


def test_one_thread_gets_at_most_half() -> None:
    cache = MemoryHistoryCache(100)
    small = fill(cache, "a", 30)
    fill(cache, "busy", 500)
    assert not small.closed
    assert cache.usage()["bytes"] == 80


def test_a_chain_larger_than_the_budget_from_the_start_is_not_kept() -> None:
    cache = MemoryHistoryCache(100)
    assert cache.chain(key("a"), lambda: Sized(200)) is not cache.chain(key("a"), Sized)
    assert cache.usage()["entries"] == 1


def test_growing_in_place_does_not_count_twice() -> None:
    cache = MemoryHistoryCache(100)
    chain = fill(cache, "a", 45)
    other = fill(cache, "b", 45)
    for _ in range(5):
        cache.measure(key("a"), chain)
    assert not other.closed
    assert cache.usage()["bytes"] == 90


def test_purging_a_thread_closes_all_its_namespaces_and_no_other_thread() -> None:
    cache = MemoryHistoryCache(1000)
    chains = {
        k: cache.chain(k, lambda: Sized(1))
        for k in (key("t1"), key("t1", ns="sub"), key("t1", "other db"), key("t10"), key("t[1]"))
    }
    cache.purge_thread("db", "t1")
    assert [chains[k].closed for k in chains] == [True, True, False, False, False]
    assert cache.chain(key("t1"), lambda: Sized(1)) is not chains[key("t1")]
    cache.purge("db")
    assert [chains[k].closed for k in chains] == [True, True, False, True, True]


def test_a_closed_chain_does_not_come_back() -> None:
    cache = MemoryHistoryCache(1000)
    old = fill(cache, "a", 10)
    cache.purge_thread("db", "a")
    cache.measure(key("a"), old)
    assert cache.usage()["entries"] == 0
    new = fill(cache, "a", 10)
    cache.measure(key("a"), old)
    assert cache.chain(key("a"), lambda: Sized(1)) is new
    assert dict(cache.chains("db", "a")) == {key("a"): new}


def test_repr_tells_how_full_it_is() -> None:
    cache = MemoryHistoryCache(2000)
    fill(cache, "a", 1000)
    assert repr(cache) == "MemoryHistoryCache(1,000 of 2,000 bytes)"
