"""Values that readers may change without changing what the next reader gets.

A `Block` keeps a run of decoded values in a frozen form (bytes) and the objects it last
handed out, their *twins*. The next read gets the same twins if nobody holds any part of
them and none was changed; otherwise fresh ones are thawed from the frozen form. Both
checks run over flat lists at C speed, a few hundred nanoseconds a message, where decoding
one costs ten microseconds.

Frozen form: chat messages and plain data (dict, list, str, numbers, bytes, None, nested)
are packed with ormsgpack. Every other type is kept in the wrapped saver's own
serialisation and decoded at each read, as the saver would.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal, Protocol, cast

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

__all__ = ["ISOLATIONS", "Block", "Isolation", "Unkeepable", "Write", "twins_can_be_reused"]

Isolation = Literal["safe", "copy", "shared"]
ISOLATIONS: tuple[Isolation, ...] = ("safe", "copy", "shared")

Write = tuple[str, str, Any]
"""LangGraph's `PendingWrite`: (task id, channel, value)."""

Shape = type[BaseMessage] | tuple[type[BaseMessage] | None, ...] | None
"""How a value is frozen: a message of this class; a list holding messages; plain data."""

_PASSTHROUGH = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_ATOMS = frozenset({str, int, float, bool, type(None), bytes})
_SAMPLES = 8
_POINTER = 8
_WRITE_OVERHEAD = 96  # the write's tuple, its slots in the lists, its task id's share


class Unkeepable(Exception):  # noqa: N818 - a signal, never seen by callers
    """A value that can neither be packed nor serialised: it must not be cached."""


class Serde(Protocol):
    """The two methods of LangGraph's `SerializerProtocol` that are used here."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialise `obj`."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read back what `dumps_typed` gave."""
        ...


def _refuse(value: Any) -> Any:
    msg = f"not plain data: {type(value).__name__}"
    raise TypeError(msg)


def _pack(tree: Any) -> bytes:
    return ormsgpack.packb(tree, _refuse, _PASSTHROUGH)


def _only_plain(value: Any) -> bool:
    """Whether packing keeps every type: ormsgpack alone turns a bytearray into bytes."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        return all(_only_plain(item) for item in value.values())
    return kind is list and all(_only_plain(item) for item in value)


def _gives_only_known_types(serde: Any) -> bool:
    """Whether decoding can give no bytearray or memoryview below the top level."""
    while isinstance(serde, EncryptedSerializer):
        serde = serde.serde
    return type(serde) is JsonPlusSerializer and not serde.pickle_fallback


def _plain_message(value: Any) -> bool:
    return (
        isinstance(value, BaseMessage)
        and not value.__pydantic_extra__
        and getattr(value, "__pydantic_private__", None) is None
    )


def _shape(value: Any) -> Shape:
    kind = type(value)
    if kind is list:
        classes = tuple(type(item) if _plain_message(item) else None for item in value)
        return classes if any(classes) else None
    return kind if _plain_message(value) else None


def _tree(value: Any, shape: Shape) -> Any:
    """The plain data inside `value`: live `__dict__`s, not copies."""
    if shape is None:
        return value
    if type(shape) is tuple:
        return [
            item if kind is None else item.__dict__ for item, kind in zip(value, shape, strict=True)
        ]
    return value.__dict__


def _messages(value: Any, shape: Shape) -> list[BaseMessage]:
    if shape is None:
        return []
    if type(shape) is tuple:
        return [m for m, kind in zip(value, shape, strict=True) if kind is not None]
    return [value]


_FIELD_SETS: dict[frozenset[str], frozenset[str]] = {}


def _field_set(message: BaseMessage) -> frozenset[str]:
    """The message's set of explicitly given fields, one object for all equal sets."""
    fields = frozenset(message.__pydantic_fields_set__)
    if len(_FIELD_SETS) > 1024:  # noqa: PLR2004 - a bound against odd message classes
        _FIELD_SETS.clear()
    return _FIELD_SETS.setdefault(fields, fields)


_new: Callable[[Any], Any] = object.__new__
_set = object.__setattr__


def _message(cls: type[BaseMessage], fields: frozenset[str], state: dict[str, Any]) -> BaseMessage:
    message: BaseMessage = _new(cls)
    _set(message, "__dict__", state)
    _set(message, "__pydantic_fields_set__", set(fields))
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message


def _references(objects: list[Any]) -> list[int]:
    return list(map(sys.getrefcount, objects))


def _overhead() -> int:
    """What `_references` counts beyond the references held by the program."""
    return _references([object()])[0] - 1


def twins_can_be_reused() -> bool:
    """Whether reference counts tell who holds an object, tried rather than assumed."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    objects: list[Any] = [{} for _ in range(3)]
    held, alias = objects[0], [objects[2]]
    counts = _references(objects)
    return [n - _overhead() for n in counts] == [2, 1, 2] and held is objects[0] and bool(alias)


class _Watch:
    """Flat views of a block's twins by which a change or a holder is noticed."""

    __slots__ = ("_children", "_expected", "_extras", "_fields", "_lists", "_parts", "_tree")

    def __init__(self, twins: list[Write], shapes: list[Shape]) -> None:
        self._parts: list[Any] = []
        self._expected: list[int] = []
        self._lists: list[list[Any]] = []
        self._fields: list[Any] = []
        self._extras: list[Any] = []
        self._tree: list[Any] = []
        overhead = _overhead()
        for twin, shape in zip(twins, shapes, strict=True):
            self._add(twin, overhead + 2)
            self._tree.append(self._value(twin[2], shape, overhead))
        self._children = list(chain.from_iterable(self._lists))

    def _add(self, part: Any, references: int) -> None:
        self._parts.append(part)
        self._expected.append(references)

    def _value(self, value: Any, shape: Shape, overhead: int) -> Any:
        if shape is None:
            # owner, parts, tree: the value itself stands in the tree, its inner parts do not
            self._data(value, overhead, 3)
            return value
        if type(shape) is not tuple:
            return self._message(value, shape, overhead, 2)
        if type(value) is not list or len(value) != len(shape):
            raise Unkeepable
        self._add(value, overhead + 3)
        self._lists.append(value)
        tree = []
        for item, kind in zip(value, shape, strict=True):
            if kind is None:
                self._data(item, overhead, 4)
                tree.append(item)
            else:
                tree.append(self._message(item, kind, overhead, 3))
        return tree

    def _message(self, value: Any, kind: Any, overhead: int, references: int) -> dict[str, Any]:
        if type(value) is not kind:
            raise Unkeepable
        self._add(value, overhead + references)
        state: dict[str, Any] = value.__dict__
        self._add(state, overhead + 3)
        self._fields.append(value.__pydantic_fields_set__)
        self._add(value.__pydantic_fields_set__, overhead + 3)
        extra = value.__pydantic_extra__
        if extra is not None:
            self._extras.append(extra)
            self._add(extra, overhead + 3)
        for item in state.values():
            if type(item) not in _ATOMS:
                self._data(item, overhead, 2)
        return state

    def _data(self, value: Any, overhead: int, references: int) -> None:
        kind = type(value)
        if kind in _ATOMS:
            return
        if kind is dict:
            self._add(value, overhead + references)
            items: Any = value.values()
        elif kind is list:
            self._add(value, overhead + references)
            items = value
        else:
            raise Unkeepable
        for item in items:
            if type(item) not in _ATOMS:
                self._data(item, overhead, 2)

    def unheld(self) -> bool:
        """Whether nobody but this block holds any part of the twins."""
        return _references(self._parts) == self._expected

    def unchanged(self, blob: bytes, fields: list[frozenset[str]]) -> bool:
        """Whether the twins still say exactly what was frozen."""
        return (
            _packs_to(self._tree, blob)
            and not any(self._extras)
            and self._fields == fields
            and list(chain.from_iterable(self._lists)) == self._children
        )

    @property
    def size(self) -> int:
        """Bytes of the flat lists themselves (each part: a reference and an expected count)."""
        return 2 * _POINTER * len(self._parts) + 6 * _POINTER * len(self._tree)


def _packs_to(tree: Any, blob: bytes) -> bool:
    try:
        return _pack(tree) == blob
    except (TypeError, ValueError):
        return False


class Block:
    """A run of one channel's writes, oldest first, kept so that readers cannot change it.

    Not thread-safe: the owner of the block takes its lock around every call.
    """

    __slots__ = (
        "_blob", "_fields", "_foreign", "_isolation", "_serde", "_shapes", "_twins", "_watch",
        "heads", "size",
    )  # fmt: skip

    def __init__(self, writes: list[Write], serde: Serde, isolation: Isolation) -> None:
        """Freeze `writes`, whose objects nobody else may hold yet, and keep them as twins.

        Raises:
            Unkeepable: a value can be neither packed nor serialised.

        """
        self.heads = [(write[0], write[1]) for write in writes]
        self._serde = serde
        self._isolation = isolation
        self._twins: list[Write] | None = writes
        self._watch: _Watch | None = None
        self._foreign: dict[int, tuple[str, bytes]] = {}
        if isolation == "shared":
            self._shapes: list[Shape] = []
            self._fields: list[frozenset[str]] = []
            self._blob = b""
            self.size = (
                sum(map(deep_size, _sample(writes))) * len(writes) // max(1, len(_sample(writes)))
            )
            return
        self._shapes = [_shape(write[2]) for write in writes]
        self._freeze(writes)
        self.size = self._estimate(writes)
        if isolation == "copy":
            self._twins = None
        elif self._foreign:  # decoded anew at each read: nothing to keep of them
            self._twins = [
                (*head, None) if i in self._foreign else write
                for i, (head, write) in enumerate(zip(self.heads, writes, strict=True))
            ]

    def __len__(self) -> int:
        return len(self.heads)

    def _freeze(self, writes: list[Write]) -> None:
        strict = not _gives_only_known_types(self._serde)
        tree = []
        for index, (write, shape) in enumerate(zip(writes, self._shapes, strict=True)):
            part = _tree(write[2], shape)
            if type(part) is bytearray or (strict and not _only_plain(part)):
                self._keep_serialised(index, write[2])
                part = None
            tree.append(part)
        try:
            self._blob = _pack(tree)
        except (TypeError, ValueError):
            for index, part in enumerate(tree):
                if not _packable(part):
                    self._keep_serialised(index, writes[index][2])
                    tree[index] = None
            self._blob = _pack(tree)
        self._fields = [
            _field_set(message)
            for write, shape in zip(writes, self._shapes, strict=True)
            for message in _messages(write[2], shape)
        ]

    def _keep_serialised(self, index: int, value: Any) -> None:
        try:
            self._foreign[index] = self._serde.dumps_typed(value)
        except Exception as error:
            raise Unkeepable from error
        self._shapes[index] = None

    def _estimate(self, writes: list[Write]) -> int:
        """Bytes of the frozen form and the twins, from the exact size of a few of them."""
        frozen = len(self._blob) + sum(len(data) for _, data in self._foreign.values())
        if self._isolation == "copy":
            return frozen + _WRITE_OVERHEAD * len(writes)
        indexes = [i for i in _sample(range(len(writes))) if i not in self._foreign]
        beyond = [
            deep_size(writes[i][2]) - len(_pack(_tree(writes[i][2], self._shapes[i])))
            for i in indexes
        ]
        per_write = _WRITE_OVERHEAD + (sum(beyond) // len(beyond) if beyond else 0)
        return 2 * frozen + per_write * len(writes)

    def take(self) -> list[Write]:
        """The writes, as objects the caller may keep and change.

        Raises:
            Unkeepable: the frozen form turned out not to keep every type.

        """
        if self._twins is not None and (self._isolation == "shared" or self._reusable()):
            twins = self._twins
        else:
            twins = self._thaw()
            self._watch = None
            self._twins = None if self._isolation == "copy" else twins
        if not self._foreign:
            return twins
        fresh = list(twins)
        for index, data in self._foreign.items():
            task_id, channel = self.heads[index]
            fresh[index] = (task_id, channel, self._serde.loads_typed(data))
        return fresh

    def drop_twins(self) -> None:
        """Let go of the twins: they belong to another block now."""
        if self._isolation != "shared":
            self._twins = self._watch = None

    def _reusable(self) -> bool:
        twins = self._twins
        if twins is None or not _REUSE:
            return False
        if self._watch is None:
            if not self._likely_unheld(twins):
                return False
            try:
                self._watch = _Watch(twins, self._shapes)
            except Unkeepable:
                return False
            self.size += self._watch.size
        return self._watch.unheld() and self._watch.unchanged(self._blob, self._fields)

    @staticmethod
    def _likely_unheld(twins: list[Write]) -> bool:
        """A cheap look at the last write, before the watch is built over all of them."""
        if not twins:
            return True
        value = twins[-1][2]
        inner = value[-1] if type(value) is list and value else value
        del value
        # references: its container, the local name
        return type(inner) in _ATOMS or _references([inner])[0] - _overhead() <= 3  # noqa: PLR2004

    def _thaw(self) -> list[Write]:
        fields = iter(self._fields)
        out: list[Write] = []
        for head, shape, part in zip(
            self.heads, self._shapes, ormsgpack.unpackb(self._blob), strict=True
        ):
            if shape is None:
                value = part
            elif type(shape) is tuple:
                value = [
                    item if kind is None else _message(kind, next(fields), item)
                    for kind, item in zip(shape, part, strict=True)
                ]
            else:
                value = _message(cast("type[BaseMessage]", shape), next(fields), part)
            out.append((*head, value))
        return out


_REUSE = twins_can_be_reused()


def _packable(part: Any) -> bool:
    try:
        _pack(part)
    except (TypeError, ValueError):
        return False
    return True


def _sample(items: Sequence[Any]) -> Sequence[Any]:
    return items[:: max(1, len(items) // _SAMPLES)][:_SAMPLES]


def deep_size(value: Any) -> int:
    """Bytes of `value` and all it holds, as tracemalloc would count them (shared atoms twice)."""
    kind = type(value)
    size = sys.getsizeof(value)
    if kind is str or kind is bytes or value is None or kind is bool:
        return 0 if value is None or kind is bool else size
    if kind is dict:
        return size + sum(map(deep_size, value.values()))
    if kind in {list, tuple, set, frozenset}:
        return size + sum(map(deep_size, value))
    state = getattr(value, "__dict__", None)
    if state is not None:
        size += sys.getsizeof(state) + sum(map(deep_size, state.values()))
        for name in ("__pydantic_fields_set__", "__pydantic_extra__"):
            size += sys.getsizeof(getattr(value, name, None))
    return size
