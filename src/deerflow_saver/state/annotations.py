"""The annotations of a schema's channels, and what they become in delta mode."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

from langchain_core.messages import AnyMessage
from langgraph.channels.base import BaseChannel
from langgraph.channels.delta import DeltaChannel
from langgraph.graph.message import _messages_delta_reducer

from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.delta import delta_field, delta_messages_field
from deerflow_saver.state.messages import merge_message_writes

__all__ = ["delta_annotations"]

MESSAGES = "messages"
_OF_MESSAGES = (merge_message_writes, _messages_delta_reducer)


def delta_annotations(schema: Any, frequency: int, channels: Iterable[str]) -> dict[str, Any]:
    """New annotations for those of `channels` that have to change."""
    new = {name: _delta_annotation(schema, name, frequency) for name in channels}
    return {name: annotation for name, annotation in new.items() if annotation is not None}


def _delta_annotation(schema: Any, name: str, frequency: int) -> Any:
    hint = _hint(schema, name)
    if hint is None:
        return delta_messages_field(frequency) if name == MESSAGES else None
    qualifier, hint = _unqualified(hint)
    value_type, extras = _parts(hint)
    current = _current(schema, name, extras)
    if current is None and name != MESSAGES:
        return None
    channel = _delta_channel(current, frequency)
    if channel == current:
        return None
    others = [extra for extra in extras if extra is not current]
    annotation = _annotated(_instantiable(value_type, channel), *others, channel)
    return NotRequired[annotation] if qualifier is NotRequired else annotation


def _delta_channel(current: Any, frequency: int) -> DeltaChannel[Any]:
    if isinstance(current, DeltaChannel) and current.reducer not in _OF_MESSAGES:
        return type(current)(current.reducer, snapshot_frequency=frequency)
    if current is None or isinstance(current, DeltaChannel):
        return DeltaChannel(merge_message_writes, snapshot_frequency=frequency)
    return delta_field(current, snapshot_frequency=frequency)


def _current(schema: Any, name: str, extras: tuple[Any, ...]) -> Any:
    """The reducer or delta channel among an annotation's extras, as LangGraph picks it."""
    for extra in extras:
        if isinstance(extra, DeltaChannel):
            return extra
        if isinstance(extra, BaseChannel) or _is_channel_class(extra):
            raise InvalidConfigError(
                f"{_name(schema)}.{name} is a {getattr(extra, '__name__', type(extra).__name__)}: "
                "only a channel with a reducer can be a delta channel. Leave it out of `channels`"
            )
    return extras[-1] if extras and _is_reducer(extras[-1]) else None


def _is_channel_class(extra: Any) -> bool:
    return inspect.isclass(extra) and issubclass(extra, BaseChannel)


def _is_reducer(extra: Any) -> bool:
    """As `langgraph.graph.state._is_field_binop`, which refuses other callables itself."""
    if not callable(extra):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(extra).parameters.values()
    return sum(parameter.kind in positional for parameter in parameters) == 2  # noqa: PLR2004


def _annotated(*parts: Any) -> Any:
    return Annotated[parts]


def _unqualified(hint: Any) -> tuple[Any, Any]:
    qualifier = get_origin(hint)
    if qualifier in (Required, NotRequired):
        return qualifier, get_args(hint)[0]
    return None, hint


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__
    return hint, ()


def _instantiable(value_type: Any, channel: DeltaChannel[Any]) -> Any:
    """A type the channel can begin with: `DeltaChannel` calls it for the empty value."""
    if channel.reducer is not merge_message_writes:
        return value_type
    make: Callable[[], Any] = DeltaChannel(merge_message_writes, _unqualified(value_type)[1]).typ
    try:
        make()
    except Exception:  # noqa: BLE001 - a caller's type may fail as it likes
        return list[AnyMessage]
    return value_type


def _hint(schema: Any, name: str) -> Any:
    """The evaluated annotation of one field: other fields may name what is not there yet."""
    for owner in getattr(schema, "__origin__", schema).__mro__:
        raw = inspect.get_annotations(owner).get(name)
        if raw is not None:
            return _evaluated(owner, name, raw)
    return None


def _evaluated(owner: type[Any], name: str, raw: Any) -> Any:
    holder = type(owner.__name__, (), {"__module__": owner.__module__})
    holder.__annotations__ = {name: raw}
    names = vars(sys.modules[owner.__module__]) if owner.__module__ in sys.modules else {}
    try:
        return get_type_hints(holder, names, dict(vars(owner)), include_extras=True)[name]
    except NameError as error:
        raise InvalidConfigError(
            f"{_name(owner)}.{name} cannot be read: {error}. LangGraph needs a schema's "
            "annotations at run time: import the name where the schema is defined"
        ) from error


def _name(schema: Any) -> str:
    target = getattr(schema, "__origin__", schema)
    return f"{target.__module__}.{target.__qualname__}"
