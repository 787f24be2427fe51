"""`open_cache`: a history cache by its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from deerflow_saver.cache.memory import MemoryHistoryCache
from deerflow_saver.errors import InvalidConfigError

__all__ = ["open_cache"]

_REDIS = ("redis", "rediss", "unix")
_NUMBER = "a number"
_OPTIONS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "bytes": ("max_bytes", int, _NUMBER),
    "ttl": ("ttl", int, _NUMBER),
    "timeout": ("timeout", float, _NUMBER),
    "rest": ("rest", float, _NUMBER),
    "cluster": ("cluster", {"true": True, "false": False}.__getitem__, "true or false"),
}
"""Per option of an address: the argument, how its text is read, and what it must be."""


def open_cache(url: str, *, secret: str | bytes = "") -> MemoryHistoryCache:
    """The cache that `url` names.

    `memory://?bytes=268435456` is a `MemoryHistoryCache`; `redis://host:6379/0?ttl=3600` a
    `RedisHistoryCache`, with `bytes`, `ttl`, `timeout`, `rest` and `cluster` as in its `from_url`
    and whatever else redis-py reads.

    Raises:
        InvalidConfigError: another scheme, or an option that is none.
        ImportError: redis-py is needed and not installed.

    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        msg = f"not an address of a cache: {error}"
        raise InvalidConfigError(msg) from None
    if parts.scheme not in {"memory", *_REDIS}:
        scheme = f"{parts.scheme}://" if parts.scheme else "an address without a scheme"
        msg = f"a cache is memory://?bytes=... or redis://host:port/number, not {scheme}"
        raise InvalidConfigError(msg)
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = {_OPTIONS[name][0]: _read(name, text) for name, text in given if name in _OPTIONS}
    rest = [(name, text) for name, text in given if name not in _OPTIONS]
    if parts.scheme == "memory":
        unknown = sorted({name for name, _ in rest} | (options.keys() - {"max_bytes"}))
        if unknown or parts.netloc or parts.path.strip("/"):
            what = ", ".join(unknown) or f"{parts.netloc}{parts.path}"
            msg = f"memory:// takes ?bytes=... only, not {what}"
            raise InvalidConfigError(msg)
        return MemoryHistoryCache(**options)
    from deerflow_saver.cache.redis import RedisHistoryCache
    from deerflow_saver.cache.redis_clients import UnknownOptionError

    # Not `geturl`, which leaves out the slashes of unix:///path
    address = url.partition("?")[0] + (f"?{urlencode(rest)}" if rest else "")
    try:
        return RedisHistoryCache.from_url(address, secret=secret, **options)
    except UnknownOptionError as error:
        msg = f"{error}; it takes {', '.join(_OPTIONS)}, and what redis-py reads"
        raise InvalidConfigError(msg) from None


def _read(name: str, text: str) -> Any:
    _, read, kind = _OPTIONS[name]
    try:
        return read(text)
    except (ValueError, KeyError):
        msg = f"the cache option {name} must be {kind}, got {text!r}"
        raise InvalidConfigError(msg) from None
