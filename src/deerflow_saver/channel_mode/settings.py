"""`CheckpointSettings`: what an operator may set, from a config section or the environment.

The keys are those of the `database` section that DeerFlow's config files use, as far as they
concern this package. A key that does not exist is refused by its name: a misspelt one would
otherwise leave its default in force, on one of several processes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, get_args

from deerflow_saver.channel_mode.freeze import (
    DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
    CheckpointChannelMode,
    Frozen,
    check_mode,
    check_snapshot_frequency,
    freeze,
)
from deerflow_saver.errors import DeerflowSaverWarning, InvalidConfigError

__all__ = ["CheckpointSettings"]

CacheType = Literal["memory", "redis"]
GuardPolicy = Literal["refuse", "refuse-all", "observe", "off"]

_PREFIX = "DEERFLOW_SAVER__"
_REDIS_URLS = ("DEER_FLOW_CHECKPOINT_CACHE_REDIS_URL", "REDIS_URL")
_DEFAULT_MAX_BYTES = 64 * 1024 * 1024
_DEFAULT_TTL_SECONDS = 86_400
_DEFAULT_GRAPH_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """One process's settings, checked.

    Attributes:
        mode: `checkpoint_channel_mode`, `"full"` or `"delta"`.
        snapshot_frequency: `checkpoint_delta.snapshot_frequency`, updates per snapshot, >= 1.
        accessor_graph_max: `checkpoint_graph_cache.accessor_graph_max`, compiled graphs kept,
            >= 1.
        cache_type: `checkpoint_cache.type`, `"memory"` or `"redis"`.
        cache_max_bytes: `checkpoint_cache.max_bytes`, the budget in bytes; 0 disables.
        cache_redis_url: `checkpoint_cache.redis_url`.
        cache_ttl_seconds: `checkpoint_cache.ttl_seconds`; 0 means no expiry.
        cache_key_prefix: `checkpoint_cache.key_prefix`.
        cache_secret: `checkpoint_cache.secret`, with which records in Redis are signed.
        guard: `guard`, the policy of `CachedHistorySaver`.
        fixes: `fixes`: `"auto"`, `"off"`, or the names of the fixes to apply.

    Raises:
        InvalidConfigError: a value of the wrong type or out of bounds, named by its key.

    """

    mode: CheckpointChannelMode = "full"
    snapshot_frequency: int = DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY
    accessor_graph_max: int = _DEFAULT_GRAPH_MAX
    cache_type: CacheType = "memory"
    cache_max_bytes: int = _DEFAULT_MAX_BYTES
    cache_redis_url: str | None = field(default=None, repr=False)
    cache_ttl_seconds: int = _DEFAULT_TTL_SECONDS
    cache_key_prefix: str = ""
    cache_secret: str = field(default="", repr=False)
    guard: GuardPolicy = "refuse"
    fixes: Literal["auto", "off"] | tuple[str, ...] = "auto"

    def __post_init__(self) -> None:
        """Check every value."""
        check_mode(self.mode)
        check_snapshot_frequency(self.snapshot_frequency)
        _int("checkpoint_graph_cache.accessor_graph_max", self.accessor_graph_max, at_least=1)
        _one_of("checkpoint_cache.type", self.cache_type, get_args(CacheType))
        _int("checkpoint_cache.max_bytes", self.cache_max_bytes, at_least=0)
        _int("checkpoint_cache.ttl_seconds", self.cache_ttl_seconds, at_least=0)
        _str("checkpoint_cache.key_prefix", self.cache_key_prefix)
        _str("checkpoint_cache.secret", self.cache_secret)
        _one_of("guard", self.guard, get_args(GuardPolicy))
        object.__setattr__(self, "fixes", _fixes(self.fixes))
        if self.cache_redis_url is not None:
            _str("checkpoint_cache.redis_url", self.cache_redis_url)
        if self.cache_type == "redis" and not self.cache_redis_url:
            raise InvalidConfigError(
                "checkpoint_cache.redis_url is required for the redis cache: set it, or "
                f"{_REDIS_URLS[0]}, or {_REDIS_URLS[1]}"
            )

    @classmethod
    def from_mapping(
        cls, section: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
    ) -> CheckpointSettings:
        """Settings of a config section; `environ` (the process's own) is asked for a Redis URL.

        Raises:
            InvalidConfigError: unknown keys, or a value that is none.

        """
        flat = _flat(_modern(section))
        unknown = sorted(flat.keys() - _KEYS.keys())
        if unknown:
            raise InvalidConfigError(f"unknown setting(s): {', '.join(map(_with_hint, unknown))}")
        given = {_KEYS[key]: value for key, value in flat.items()}
        if given.get("cache_type") == "redis" and given.get("cache_redis_url") in (None, ""):
            given["cache_redis_url"] = _redis_url(os.environ if environ is None else environ)
        return cls(**given)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> CheckpointSettings:
        """Settings from variables such as `DEERFLOW_SAVER__CHECKPOINT_CACHE__TYPE=redis`.

        A name is the prefix `DEERFLOW_SAVER__` and a key in capitals, its dot written as two
        underscores. `FIXES` takes `auto`, `off`, or names with commas between them; empty, it
        is `auto`.

        Raises:
            InvalidConfigError: unknown names with that prefix, or a value that is none.

        """
        source = os.environ if environ is None else environ
        section: dict[str, Any] = {}
        for name, text in source.items():
            if name.startswith(_PREFIX):
                key = name.removeprefix(_PREFIX).lower().replace("__", ".")
                section[key] = _parsed(key, text)
        return cls.from_mapping(section, environ=source)

    def freeze(self) -> Frozen:
        """Settle this process's mode and cadence; errors as `channel_mode.freeze`."""
        return freeze(self.mode, self.snapshot_frequency)


_KEYS = {
    "checkpoint_channel_mode": "mode",
    "checkpoint_delta.snapshot_frequency": "snapshot_frequency",
    "checkpoint_graph_cache.accessor_graph_max": "accessor_graph_max",
    "checkpoint_cache.type": "cache_type",
    "checkpoint_cache.max_bytes": "cache_max_bytes",
    "checkpoint_cache.redis_url": "cache_redis_url",
    "checkpoint_cache.ttl_seconds": "cache_ttl_seconds",
    "checkpoint_cache.key_prefix": "cache_key_prefix",
    "checkpoint_cache.secret": "cache_secret",
    "guard": "guard",
    "fixes": "fixes",
}
_SECTIONS = frozenset(key.partition(".")[0] for key in _KEYS if "." in key)
_INTEGERS = frozenset(
    key for key in _KEYS if key.endswith(("frequency", "max", "bytes", "seconds"))
)
_HINTS = {"checkpoint_cache.max_entries": "checkpoint_cache.max_bytes, a budget in bytes"}
_NEW, _OLD = "checkpoint_delta.snapshot_frequency", "checkpoint_delta_snapshot_frequency"


def _modern(section: Any) -> Mapping[str, Any]:
    """The section with the old name of the cadence moved to its place."""
    if not isinstance(section, Mapping):
        msg = f"settings must be a mapping of keys to values, got {type(section).__name__}"
        raise InvalidConfigError(msg)
    if _OLD not in section:
        return section
    rest = {key: value for key, value in section.items() if key != _OLD}
    taken = _NEW in _flat(rest)
    outcome = f"{_NEW} is set as well and wins" if taken else f"use {_NEW}"
    warnings.warn(f"{_OLD} is deprecated: {outcome}", DeerflowSaverWarning, stacklevel=3)
    return rest if taken else {**rest, _NEW: section[_OLD]}


def _flat(section: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Keys with dots for nesting; a section left empty (None) says nothing."""
    flat: dict[str, Any] = {}
    for name, value in section.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping):
            found = _flat(value, f"{key}.")
        else:
            found = {key: value} if value is not None or key not in _SECTIONS else {}
        for inner, said in found.items():
            if flat.setdefault(inner, said) != said:  # which may be a secret
                msg = f"{inner} is set twice, to different values"
                raise InvalidConfigError(msg)
    return flat


def _with_hint(key: str) -> str:
    hint = _HINTS.get(key)
    if hint is None:
        hint = next(iter(get_close_matches(key, _KEYS, n=1)), None)
    return f"{key} (did you mean {hint}?)" if hint else key


def _redis_url(environ: Mapping[str, str]) -> str | None:
    return next((environ[name] for name in _REDIS_URLS if environ.get(name)), None)


def _parsed(key: str, text: str) -> Any:
    """A variable's text as the type its key has."""
    if key in _INTEGERS or key == _OLD:
        try:
            return int(text)
        except ValueError:
            msg = f"{key} must be an int, got {text!r}"
            raise InvalidConfigError(msg) from None
    if key == "fixes" and text not in {"auto", "off"}:
        return tuple(name.strip() for name in text.split(",") if name.strip()) or "auto"
    return text


def _int(key: str, value: Any, *, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        msg = f"{key} must be an int >= {at_least}, got {value!r}"
        raise InvalidConfigError(msg)


def _str(key: str, value: Any) -> None:
    if not isinstance(value, str):
        msg = f"{key} must be a str, got {value!r}"
        raise InvalidConfigError(msg)


def _one_of(key: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        msg = f"{key} must be one of {', '.join(known)}; got {value!r}"
        raise InvalidConfigError(msg)


def _fixes(value: Any) -> Any:
    if value in ("auto", "off"):
        return value
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(value)
    msg = f"fixes must be 'auto', 'off' or a list of names, got {value!r}"
    raise InvalidConfigError(msg)
