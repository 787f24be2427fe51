"""Delta channels for schemas: of messages, and of any other reducer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph.message import add_messages

from deerflow_saver.channel_mode import DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY
from deerflow_saver.channel_mode.freeze import check_snapshot_frequency
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.messages import merge_message_writes

__all__ = ["DELTA_MESSAGES_FIELD", "ReducerDeltaChannel", "delta_field", "delta_messages_field"]

Reducer = Callable[[Any, Any], Any]


def delta_messages_field(
    snapshot_frequency: int = DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
) -> Any:
    """The annotation of a delta channel of messages.

    Args:
        snapshot_frequency: updates between two stored snapshots.

    Returns:
        `Annotated[list[AnyMessage], DeltaChannel(merge_message_writes, ...)]`.

    Raises:
        InvalidConfigError: `snapshot_frequency` is no positive int.

    """
    return Annotated[list[AnyMessage], _messages_channel(snapshot_frequency)]


def delta_field(
    reducer: Reducer,
    *,
    snapshot_frequency: int = DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
) -> DeltaChannel[Any]:
    """The delta channel that stands for a reducer in an `Annotated` field.

    `Annotated[list[str], operator.add]` becomes
    `Annotated[list[str], delta_field(operator.add)]`.

    Args:
        reducer: `(value, update) -> value`, deterministic; `add_messages` becomes
            `merge_message_writes`, which is.
        snapshot_frequency: updates between two stored snapshots.

    Raises:
        InvalidConfigError: `snapshot_frequency` is no positive int, or `reducer` is
            `add_messages` with a format: it mints other ids at every replay.

    """
    if reducer is add_messages:
        return _messages_channel(snapshot_frequency)
    if _formats_messages(reducer):
        raise InvalidConfigError(
            "add_messages(format=...) cannot be a delta channel: it gives messages without an "
            "id another one at every replay. Use add_messages, and format what the model is sent"
        )
    return ReducerDeltaChannel(
        reducer, snapshot_frequency=check_snapshot_frequency(snapshot_frequency)
    )


class ReducerDeltaChannel(DeltaChannel[Any]):
    """A delta channel of a plain reducer, folded over the writes one by one.

    A type that cannot be made without arguments (`X | None`, for example) starts as None,
    where `DeltaChannel` fails; the reducer then gets None as its first value.
    """

    __slots__ = ("declared",)

    def __init__(
        self,
        reducer: Reducer,
        typ: Any = None,
        *,
        snapshot_frequency: int = DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
    ) -> None:
        """As LangGraph calls it when it reads the annotation, and for every copy."""
        folded = reducer if isinstance(reducer, _Fold) else _Fold(reducer)
        self.declared = typ.declared if isinstance(typ, _Empty) else typ or list
        super().__init__(folded, self.declared, snapshot_frequency=snapshot_frequency)
        if not _can_be_empty(self.typ):
            self.typ = _Empty(self.declared)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ReducerDeltaChannel)
            and self.snapshot_frequency == other.snapshot_frequency
            and self.reducer == other.reducer
        )

    __hash__ = None  # type: ignore[assignment]  # as every channel: it holds a value

    @property
    def ValueType(self) -> Any:  # noqa: N802 - LangGraph's name
        """The declared type, which LangGraph builds its JSON schemas from."""
        return self.declared

    @property
    def UpdateType(self) -> Any:  # noqa: N802 - LangGraph's name
        """As `ValueType`."""
        return self.declared


class _Fold:
    """A reducer of one update made into one of many; equal where the reducer is the same."""

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer
        # What LangGraph compares and prints reducers by.
        self.__name__ = getattr(reducer, "__name__", type(reducer).__name__)

    def __call__(self, value: Any, writes: Sequence[Any]) -> Any:
        for write in writes:
            value = self.reducer(value, write)
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fold) and self.reducer == other.reducer

    def __hash__(self) -> int:
        return hash(self.reducer)


class _Empty:
    """Makes the None that a value begins as, in place of its type."""

    def __init__(self, declared: Any) -> None:
        self.declared = declared

    def __call__(self) -> None:
        return None


def _can_be_empty(typ: Any) -> bool:
    try:
        typ()
    except Exception:  # noqa: BLE001 - a caller's type may fail as it likes
        return False
    return True


def _messages_channel(snapshot_frequency: int) -> DeltaChannel[Any]:
    return DeltaChannel(
        merge_message_writes, snapshot_frequency=check_snapshot_frequency(snapshot_frequency)
    )


def _formats_messages(reducer: Reducer) -> bool:
    if not isinstance(reducer, partial):
        return False
    return getattr(reducer.func, "__module__", None) == add_messages.__module__


DELTA_MESSAGES_FIELD = delta_messages_field()
"""`delta_messages_field()`: messages as a delta channel at the default cadence."""
