from __future__ import annotations

from typing import Any

import pytest

from deerflow_saver.cache.memory import DEFAULT_MAX_BYTES
from deerflow_saver.channel_mode import CheckpointSettings, frozen, thawed
from deerflow_saver.errors import DeerflowSaverWarning, InvalidConfigError
from deerflow_saver.guard.policy import POLICIES


def test_defaults_are_those_of_the_parts() -> None:
    settings = CheckpointSettings.from_mapping({}, environ={})
    assert settings == CheckpointSettings()
    assert (settings.mode, settings.snapshot_frequency) == ("full", 10)
    assert settings.cache_max_bytes == DEFAULT_MAX_BYTES
    assert settings.guard in POLICIES
    for policy in POLICIES:
        assert CheckpointSettings(guard=policy).guard == policy


def test_a_whole_section_is_read() -> None:
    section = {
        "checkpoint_channel_mode": "delta",
        "checkpoint_delta": {"snapshot_frequency": 25},
        "checkpoint_graph_cache": {"accessor_graph_max": 8},
        "checkpoint_cache": {
            "type": "redis",
            "max_bytes": 0,
            "redis_url": "redis://one",
            "ttl_seconds": 0,
            "key_prefix": "p",
        },
        "guard": "observe",
        "fixes": ["one", "two"],
    }
    assert CheckpointSettings.from_mapping(section) == CheckpointSettings(
        mode="delta", snapshot_frequency=25, accessor_graph_max=8, cache_type="redis",
        cache_max_bytes=0, cache_redis_url="redis://one", cache_ttl_seconds=0,
        cache_key_prefix="p", guard="observe", fixes=("one", "two"),
    )  # fmt: skip


def test_an_empty_section_says_nothing() -> None:
    assert CheckpointSettings.from_mapping({"checkpoint_cache": None}) == CheckpointSettings()


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"chekpoint_channel_mode": "delta"}, "chekpoint_channel_mode .*checkpoint_channel_mode"),
        ({"checkpoint_cache": {"max_entries": 5}}, "max_entries .*checkpoint_cache.max_bytes"),
        ({"checkpoint_cache": {"nonsense": None}}, "checkpoint_cache.nonsense"),
        ({"sqlite_dir": "x", "backend": "sqlite"}, "backend, sqlite_dir"),
    ],
)
def test_unknown_keys_are_refused_by_name(section: Any, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        CheckpointSettings.from_mapping(section)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"checkpoint_channel_mode": "Full"}, "checkpoint_channel_mode must be"),
        ({"checkpoint_delta": {"snapshot_frequency": 0}}, "snapshot frequency must be positive"),
        ({"checkpoint_delta": {"snapshot_frequency": True}}, "snapshot frequency"),
        ({"checkpoint_graph_cache": {"accessor_graph_max": 0}}, "accessor_graph_max must be"),
        ({"checkpoint_cache": {"max_bytes": -1}}, "checkpoint_cache.max_bytes must be an int >= 0"),
        ({"checkpoint_cache": {"ttl_seconds": "60"}}, "checkpoint_cache.ttl_seconds"),
        ({"checkpoint_cache": {"type": "disk"}}, "checkpoint_cache.type must be one of"),
        ({"checkpoint_cache": {"type": "redis"}}, "checkpoint_cache.redis_url is required"),
        ({"checkpoint_cache": {"redis_url": 5}}, "checkpoint_cache.redis_url must be a str"),
        ({"checkpoint_cache": {"key_prefix": None}}, "checkpoint_cache.key_prefix must be a str"),
        ({"guard": "on"}, "guard must be one of refuse"),
        ({"fixes": [1]}, "fixes must be"),
        ([], "must be a mapping"),
    ],
)
def test_values_out_of_bounds_are_refused_by_key(section: Any, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        CheckpointSettings.from_mapping(section, environ={})


def test_the_redis_url_may_come_from_the_environment() -> None:
    section = {"checkpoint_cache": {"type": "redis"}}
    environ = {"REDIS_URL": "redis://b"}
    assert CheckpointSettings.from_mapping(section, environ=environ).cache_redis_url == "redis://b"
    environ["DEER_FLOW_CHECKPOINT_CACHE_REDIS_URL"] = "redis://a"
    assert CheckpointSettings.from_mapping(section, environ=environ).cache_redis_url == "redis://a"


def test_the_environment_alone_sets_everything() -> None:
    environ = {
        "PATH": "/bin",
        "DEERFLOW_SAVER__CHECKPOINT_CHANNEL_MODE": "delta",
        "DEERFLOW_SAVER__CHECKPOINT_DELTA__SNAPSHOT_FREQUENCY": "25",
        "DEERFLOW_SAVER__CHECKPOINT_CACHE__MAX_BYTES": "1024",
        "DEERFLOW_SAVER__GUARD": "off",
        "DEERFLOW_SAVER__FIXES": "one, two",
    }
    assert CheckpointSettings.from_environ(environ) == CheckpointSettings(
        mode="delta", snapshot_frequency=25, cache_max_bytes=1024, guard="off", fixes=("one", "two")
    )


def test_a_variable_that_is_left_empty_says_nothing() -> None:
    """As container files pass on what the host has not set: no fix goes off, no URL is hidden."""
    environ = {
        "DEERFLOW_SAVER__FIXES": "",
        "DEERFLOW_SAVER__CHECKPOINT_CACHE__TYPE": "redis",
        "DEERFLOW_SAVER__CHECKPOINT_CACHE__REDIS_URL": "",
        "REDIS_URL": "redis://a",
    }
    settings = CheckpointSettings.from_environ(environ)
    assert settings.fixes == "auto"
    assert settings.cache_redis_url == "redis://a"
    with pytest.raises(InvalidConfigError, match="redis_url is required"):
        CheckpointSettings.from_environ({**environ, "REDIS_URL": ""})


def test_a_key_that_is_set_in_both_spellings_is_refused_without_its_values() -> None:
    section = {"checkpoint_cache.secret": "hidden", "checkpoint_cache": {"secret": "veiled"}}
    with pytest.raises(InvalidConfigError, match=r"checkpoint_cache\.secret is set twice") as error:
        CheckpointSettings.from_mapping(section)
    assert not {"hidden", "veiled"} & set(str(error.value).split())
    section["checkpoint_cache.secret"] = "veiled"
    assert CheckpointSettings.from_mapping(section).cache_secret == "veiled"


def test_variables_that_mean_nothing_are_refused_by_name() -> None:
    with pytest.raises(InvalidConfigError, match=r"checkpoint_cache\.kind"):
        CheckpointSettings.from_environ({"DEERFLOW_SAVER__CHECKPOINT_CACHE__KIND": "redis"})
    with pytest.raises(InvalidConfigError, match="must be an int, got 'ten'"):
        CheckpointSettings.from_environ(
            {"DEERFLOW_SAVER__CHECKPOINT_DELTA__SNAPSHOT_FREQUENCY": "ten"}
        )


def test_the_old_name_of_the_cadence_moves_to_its_place_with_a_warning() -> None:
    old: dict[str, Any] = {"checkpoint_delta_snapshot_frequency": 4}
    with pytest.warns(DeerflowSaverWarning, match="use checkpoint_delta.snapshot_frequency"):
        assert CheckpointSettings.from_mapping(old).snapshot_frequency == 4
    old["checkpoint_delta"] = {"snapshot_frequency": 6}
    with pytest.warns(DeerflowSaverWarning, match="wins"):
        assert CheckpointSettings.from_mapping(old).snapshot_frequency == 6


def test_settings_freeze_the_process() -> None:
    with thawed():
        CheckpointSettings(mode="delta", snapshot_frequency=3).freeze()
        assert frozen() == ("delta", 3)
