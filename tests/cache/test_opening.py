"""Caches by address, and savers by settings."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import InvalidConfigError, MemoryHistoryCache, cache_of, open_cache, wrap
from deerflow_saver.cache.redis import RedisHistoryCache
from deerflow_saver.channel_mode import CheckpointSettings
from support.threads import Line
from support.workers import same


def test_memory_takes_its_budget() -> None:
    assert open_cache("memory://?bytes=1000").usage()["max_bytes"] == 1000
    assert type(open_cache("memory://")) is MemoryHistoryCache


def test_redis_takes_its_options_and_leaves_the_others_to_the_client() -> None:
    url = "redis://localhost:1/2?ttl=60&bytes=1000&timeout=0.1&rest=1&client_name=me"
    cache = open_cache(url, secret="s")
    assert isinstance(cache, RedisHistoryCache)
    assert cache.usage()["max_bytes"] == 1000
    assert (cache.store._ttl, cache.store.secret) == (60, b"s")
    assert cache.store._clients._url == "redis://localhost:1/2?client_name=me"


@pytest.mark.parametrize("url", ["unix:///run/redis.sock?db=2&ttl=60", "rediss://localhost:1/2"])
def test_redis_may_be_a_socket_or_behind_tls(url: str) -> None:
    cache = open_cache(url)
    assert isinstance(cache, RedisHistoryCache)
    assert cache.store._clients._url == url.replace("&ttl=60", "")


@pytest.mark.parametrize(
    "url",
    [
        "memcached://x", "nothing", "", "memory://?ttl=5", "memory://?bytes=many",
        "memory://host", "redis://x?bytes=-1", "redis://x?ttl=soon", "memory://?size=4",
        "unix:///tmp/x?tll=5", "rediss://x?tll=5",
        "redis://[::1", "redis://x?tll=5", "redis://x?decode_responses=true", "redis://x?rest=inf",
        "redis://x?timeout=nan", "redis://x?ttl=99999999999", "redis://x?ssl_cert_reqs=none",
    ],
)  # fmt: skip
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfigError):
        open_cache(url)


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("redis://h/0?ttl=3&tll=3", "a redis:// address has no option 'tll'"),
        ("unix:///h?ttl=3&tll=3", "a unix:// address has no option 'tll'"),
        ("redis://h?ssl_cert_reqs=none", "a redis:// address has no option 'ssl_cert_reqs'"),
    ],
)
def test_an_unknown_option_is_named_beside_the_known_ones(url: str, option: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        open_cache(url)
    known = "it takes bytes, ttl, timeout, rest, cluster, and what redis-py reads"
    assert str(caught.value) == f"{option}; {known}"


def test_redis_without_its_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=r"deerflow-saver\[redis\]"):
        open_cache("redis://localhost")


def test_settings_make_the_cache_and_the_wrapper(redis_database: str) -> None:
    section: dict[str, Any] = {
        "checkpoint_cache": {
            "type": "redis", "redis_url": redis_database, "ttl_seconds": 50, "max_bytes": 5000,
            "key_prefix": "orders", "secret": "hush",
        },
        "guard": "refuse-all",
        "fixes": "off",
    }  # fmt: skip
    settings = CheckpointSettings.from_mapping(section)
    assert "hush" not in repr(settings)
    assert redis_database not in repr(settings)
    cache = cache_of(settings)
    assert isinstance(cache, RedisHistoryCache)
    assert (cache.store._ttl, cache.usage()["max_bytes"]) == (50, 5000)
    first, second = wrap(InMemorySaver(), settings), wrap(InMemorySaver(), settings, cache=cache)
    assert first.guard is not None
    assert first.guard.policy == "refuse-all"
    assert second._self_core.shared.cache is cache
    assert second._self_core.shared.home.identity.prefix == "orders"
    line = Line(first)
    line.grow(3)
    assert same(line, first)


def test_without_settings_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEERFLOW_SAVER__CHECKPOINT_CACHE__MAX_BYTES", "1234")
    monkeypatch.setenv("DEERFLOW_SAVER__GUARD", "off")
    saver = wrap(InMemorySaver())
    assert saver.cache_info().max_bytes == 1234
    assert saver.guard is None
