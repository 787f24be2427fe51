"""Arguments of saver calls, found by position or name, and checked where a mistake costs data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from deerflow_saver.errors import InvalidConfigError

__all__ = [
    "PUT", "PUT_WRITES", "argument", "arguments", "configurable", "history_arguments",
    "is_mapping", "require_thread", "step_of", "writes_kept",
]  # fmt: skip


def argument(name: str, position: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An argument given by position or by name; None if it is missing."""
    return args[position] if len(args) > position else kwargs.get(name)


PUT = ("config", "checkpoint", "metadata", "new_versions")
PUT_WRITES = ("config", "writes", "task_id", "task_path")
_WRITES = PUT_WRITES.index("writes")


def arguments(
    names: tuple[str, ...], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Sequence[Any]:
    """The arguments of these names, in this order; None for what is missing."""
    if len(args) == len(names) and not kwargs:
        return args
    return [argument(name, position, args, kwargs) for position, name in enumerate(names)]


def writes_kept(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments of a `put_writes`; writes that can be read only once as a list."""
    writes = argument("writes", _WRITES, args, kwargs)
    if type(writes) is list or not isinstance(writes, Iterator):
        return args, kwargs
    if len(args) > _WRITES:
        return (*args[:_WRITES], list(writes), *args[_WRITES + 1 :]), kwargs
    return args, {**kwargs, "writes": list(writes)}


def is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether it is a mapping, told of a plain dict without asking the abstract class."""
    return type(value) is dict or isinstance(value, Mapping)


def configurable(config: Any) -> Mapping[str, Any]:
    """The `configurable` part of a config, empty if there is none."""
    if not is_mapping(config):
        return {}
    found = config.get("configurable")
    return found if is_mapping(found) else {}


def step_of(metadata: Any) -> int | None:
    """LangGraph's step number of a checkpoint, where its metadata has one."""
    step = metadata.get("step")
    return step if isinstance(step, int) else None


def require_thread(operation: str, config: Any) -> None:
    """Refuse a config that names no thread.

    Raises:
        InvalidConfigError: there is no `thread_id` (a `KeyError` too, as LangGraph's own).

    """
    if "thread_id" not in configurable(config):
        msg = (
            f"{operation}: config must name a thread, as "
            '{"configurable": {"thread_id": ..., "checkpoint_ns": ""}}; '
            f"got {config!r}"
        )
        raise InvalidConfigError(msg)


def history_arguments(args: Any, kwargs: Any) -> tuple[Any, tuple[str, ...]]:
    """Config and channels of a history call.

    Raises:
        InvalidConfigError: no thread in the config, or channels that are no sequence of names.
        TypeError: other arguments than the two keyword arguments.

    """
    if args or kwargs.keys() != {"config", "channels"}:
        msg = "get_delta_channel_history() takes exactly two keyword arguments: config and channels"
        raise TypeError(msg)
    config, channels = kwargs["config"], kwargs["channels"]
    if type(channels) is not list and (
        isinstance(channels, str) or not isinstance(channels, Collection)
    ):
        msg = f"channels must be a sequence of channel names, got {type(channels).__name__}"
        raise InvalidConfigError(msg)
    names = tuple(dict.fromkeys(channels))
    if not all(isinstance(name, str) for name in names):
        msg = f"channels must hold channel names (str), got {channels!r}"
        raise InvalidConfigError(msg)
    if names:
        require_thread("get_delta_channel_history", config)
    return config, names
