"""Values that readers may change without changing what the next reader gets.

A `Block` keeps a growing run of decoded values in a frozen form (bytes) and the objects it
last handed out, their *twins*. The next read gets the same twins if nobody holds any part of
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
from typing import Any, Literal, Protocol

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

__all__ = ["ISOLATIONS", "Block", "Isolation", "Unkeepable", "Write", "twins_can_be_reused"]

Isolation = Literal["safe", "copy", "shared"]
ISOLATIONS: tuple[Isolation, ...] = ("safe", "copy", "shared")

Write = tuple[str, str, Any]
"""LangGraph's `PendingWrite`: (task id, channel, value)."""


class _Only:
    """The shape of a list that holds one message, the commonest write there is."""

    __slots__ = ("kind",)

    def __init__(self, kind: type[BaseMessage]) -> None:
        self.kind = kind


Shape = _Only | type[BaseMessage] | tuple[type[BaseMessage] | None, ...] | None
"""How a value is frozen: list of one message, message, list with messages, plain data."""

_PASSTHROUGH = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_ATOMS = frozenset({str, int, float, bool, type(None), bytes})
_FEW = 64
"""Below this many writes and messages, fresh objects cost less than a look at the old ones."""
_WRITE_BYTES = 220  # the head, list slots and the task id of one write
_SAMPLED = 16  # so many writes, at most, are weighed for all until all are measured
_LONG = 64  # items of a list, beyond which a few stand for all
_GOLDEN = 0.6180339887  # its multiples fall evenly between one another, in step with no pattern


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


def _header(length: int) -> bytes:
    """The bytes that open a msgpack array; its items follow as they are packed alone."""
    if length < 16:  # noqa: PLR2004 - msgpack's fixarray, array 16, array 32
        return bytes([0x90 | length])
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")


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
    if type(serde) is JsonPlusSerializer:
        return not serde.pickle_fallback
    return isinstance(serde, EncryptedSerializer) and _gives_only_known_types(serde.serde)


_MESSAGE_CLASSES: dict[type, bool] = {}
_LAST_FIELDS: dict[type, frozenset[str]] = {}
_NO_FIELDS: tuple[frozenset[str], ...] = ()
_ONLY: dict[type, _Only] = {}


def _is_message_class(kind: type) -> bool:
    """`issubclass(kind, BaseMessage)`, without asking a metaclass each time."""
    known = _MESSAGE_CLASSES.get(kind)
    if known is None:
        known = _MESSAGE_CLASSES[kind] = issubclass(kind, BaseMessage)
    return known


def _plain_message(value: Any, kind: type) -> bool:
    return (
        kind not in _ATOMS
        and _is_message_class(kind)
        and value.__pydantic_extra__ == {}
        and getattr(value, "__pydantic_private__", None) is None
    )


def _field_set(message: BaseMessage, kind: type) -> frozenset[str]:
    """The message's set of explicitly given fields; equal ones of a class are mostly one object."""
    fields = message.__pydantic_fields_set__
    last = _LAST_FIELDS.get(kind)
    if last is None or fields != last:
        last = _LAST_FIELDS[kind] = frozenset(fields)
    return last


def _split(value: Any) -> tuple[Shape, Any, Sequence[frozenset[str]]]:
    """A value's shape, the plain data inside it (live `__dict__`s, not copies), its field sets."""
    kind = type(value)
    if kind is not list:
        if _plain_message(value, kind):
            return kind, value.__dict__, (_field_set(value, kind),)
        return None, value, _NO_FIELDS
    if len(value) == 1:
        (item,) = value
        of = type(item)
        if not _plain_message(item, of):
            return None, value, _NO_FIELDS
        only = _ONLY.get(of)
        if only is None:
            only = _ONLY[of] = _Only(of)
        return only, item.__dict__, (_field_set(item, of),)
    classes = tuple([type(item) if _plain_message(item, type(item)) else None for item in value])
    fields = tuple([_field_set(m, of) for m, of in zip(value, classes, strict=True) if of])
    if not fields:
        return None, value, _NO_FIELDS
    tree = [m.__dict__ if of else m for m, of in zip(value, classes, strict=True)]
    return classes, tree, fields


_new: Callable[[Any], Any] = object.__new__
_set_state = vars(BaseModel)["__dict__"].__set__
_set_fields = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private = vars(BaseModel)["__pydantic_private__"].__set__


def _message(kind: Any, fields: frozenset[str], state: dict[str, Any]) -> BaseMessage:
    """A message of these parts, as pydantic itself would lay it out."""
    message: BaseMessage = _new(kind)
    _set_state(message, state)
    _set_fields(message, set(fields))
    _set_extra(message, {})
    _set_private(message, None)
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

    __slots__ = (
        "_children", "_classes", "_expected", "_extras", "_fields", "_lists", "_messages", "_parts",
        "_tree",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._expected: list[int] = []
        self._lists: list[list[Any]] = []
        self._children: list[Any] = []
        self._messages: list[BaseMessage] = []
        self._classes: list[Any] = []
        self._fields: list[Any] = []
        self._extras: list[Any] = []
        self._tree: list[Any] = []

    def __len__(self) -> int:
        return len(self._tree)

    def extend(self, twins: list[Write], shapes: list[Shape]) -> int:
        """Watch more twins; gives the bytes of their containers and of the watch itself.

        Raises:
            Unkeepable: a twin no longer has the shape it was frozen in.

        """
        start = len(self._parts)
        for twin, shape in zip(twins, shapes, strict=True):
            self._add(twin, 2)
            self._tree.append(self._value(twin[2], shape))
        new = self._parts[start:]
        return sum(map(sys.getsizeof, new)) + 26 * len(new)

    def _add(self, part: Any, references: int) -> None:
        """Watch `part`, to which this program keeps `references` references, this one included."""
        self._parts.append(part)
        self._expected.append(_OVERHEAD + references)

    def _value(self, value: Any, shape: Shape) -> Any:
        if shape is None:
            self._data(value, 3)  # owner, parts, tree; parts inside it stand in two places
            return value
        if type(shape) is _Only:
            if type(value) is not list or len(value) != 1:
                raise Unkeepable
            self._add(value, 3)
            self._lists.append(value)
            self._children += value
            return self._message(value[0], shape.kind, 4)
        if type(shape) is not tuple:
            return self._message(value, shape, 3)
        if type(value) is not list or len(value) != len(shape):
            raise Unkeepable
        self._add(value, 3)
        self._lists.append(value)
        self._children += value
        tree = []
        for item, kind in zip(value, shape, strict=True):
            if kind is None:
                self._data(item, 4)
                tree.append(item)
            else:
                tree.append(self._message(item, kind, 4))
        return tree

    def _message(self, value: Any, kind: Any, references: int) -> dict[str, Any]:
        if type(value) is not kind:
            raise Unkeepable
        self._add(value, references)
        self._messages.append(value)
        self._classes.append(kind)
        state: dict[str, Any] = value.__dict__
        self._add(state, 3)
        fields = value.__pydantic_fields_set__
        self._fields.append(fields)
        self._add(fields, 3)
        extra = value.__pydantic_extra__
        if extra is not None:
            self._extras.append(extra)
            self._add(extra, 3)
        for item in state.values():
            if type(item) not in _ATOMS:
                self._data(item, 2)
        return state

    def _data(self, value: Any, references: int) -> None:
        kind = type(value)
        if kind is dict:
            self._add(value, references)
            items: Any = value.values()
        elif kind is list:
            self._add(value, references)
            items = value
        elif kind in _ATOMS:
            return
        else:
            raise Unkeepable
        for item in items:
            if type(item) not in _ATOMS:
                self._data(item, 2)

    def unheld(self) -> bool:
        """Whether nobody but this program holds any part of the twins."""
        return _references(self._parts) == self._expected

    def unchanged(self, frozen: bytearray, fields: list[frozenset[str]]) -> bool:
        """Whether the twins still say exactly what was frozen."""
        try:
            packed = _pack(self._tree)
        except (TypeError, ValueError):
            return False
        return (
            len(packed) == len(_header(len(self._tree))) + len(frozen)
            and packed.endswith(frozen)  # a memoryview compares item by item, for ages
            and not any(self._extras)
            and self._fields == fields
            and list(map(type, self._messages)) == self._classes
            and list(chain.from_iterable(self._lists)) == self._children
        )


class Block:
    """A growing run of one channel's writes, oldest first, which readers cannot change.

    Not thread-safe: the owner of the block takes its lock around every call.
    """

    __slots__ = (
        "_bytes", "_channel", "_containers", "_estimate", "_fields", "_foreign", "_frozen",
        "_given", "_given_bytes", "_given_fields", "_isolation", "_serde", "_shapes", "_strict",
        "_twins", "_watch", "held", "task_ids",
    )  # fmt: skip

    def __init__(self, serde: Serde, isolation: Isolation) -> None:
        """Start empty."""
        self.task_ids: list[str] = []
        self._channel = ""
        self._serde = serde
        self._isolation = isolation
        self._strict = not _gives_only_known_types(serde)
        self._frozen = bytearray()
        self._shapes: list[Shape] = []
        self._fields: list[frozenset[str]] = []
        self._foreign: dict[int, tuple[str, bytes]] = {}
        self._twins: list[Write] | None = None if isolation == "copy" else []
        self.held = False
        """Whether somebody, or garbage, held the twins when they were last looked at."""
        self._given = self._given_bytes = self._given_fields = 0
        """How many twins a reader was given, so that they must be looked at: the first ones."""
        self._watch: _Watch | None = None
        self._bytes = 0
        self._containers = 0
        self._estimate = 0

    def __len__(self) -> int:
        return len(self.task_ids)

    @property
    def size(self) -> int:
        """Bytes held; the twins' containers are estimated until they are first watched."""
        return self._bytes + self._containers + self._estimate

    def append(self, writes: Sequence[Write], *, given: bool = False) -> None:
        """Freeze decoded writes and keep them as twins; `given` if a reader has them already.

        Raises:
            Unkeepable: a value can be neither packed nor serialised; nothing was appended.

        """
        start = len(self.task_ids)
        if self._isolation == "shared":
            packed = (_try_pack(_split(write[2])[1]) for write in writes)
            self._grow(sum(map(len, packed)), writes)
        else:
            self._freeze(start, writes)
        for task_id, channel, _ in writes:
            self.task_ids.append(task_id)
            self._channel = channel
        if self._twins is not None:
            if self._foreign:  # decoded anew at each read: nothing to keep of them
                writes = [
                    (*write[:2], None) if start + i in self._foreign else write
                    for i, write in enumerate(writes)
                ]
            self._twins += writes
            if given:
                self._hand_out()

    def _freeze(self, start: int, writes: Sequence[Write]) -> None:
        shapes: list[Shape] = []
        tree: list[Any] = []
        fields: list[Sequence[frozenset[str]]] = []
        for write in writes:
            shape, part, given = _split(write[2])
            shapes.append(shape)
            tree.append(part)
            fields.append(given)
        foreign: dict[int, tuple[str, bytes]] = {}
        frozen = b"" if self._strict else _try_pack(tree)
        if not frozen or bytearray in map(type, tree):
            for index, part in enumerate(tree):
                if not _keeps_types(part, strict=self._strict):
                    foreign[start + index] = _serialised(self._serde, writes[index][2])
                    shapes[index] = tree[index] = None
                    fields[index] = _NO_FIELDS
            frozen = _pack(tree)
        self._shapes += shapes
        self._fields += chain.from_iterable(fields)
        self._frozen += frozen[len(_header(len(tree))) :]
        self._foreign.update(foreign)
        self._bytes += sum(len(data) for _, data in foreign.values())
        kept = [w for i, w in enumerate(writes, start) if i not in foreign] if foreign else writes
        self._grow(len(frozen), kept)
        self._bytes += _WRITE_BYTES * len(foreign)

    def _grow(self, packed: int, writes: Sequence[Write]) -> None:
        """Account for new writes; strings weigh about what they weigh packed."""
        self._bytes += packed + _WRITE_BYTES * len(writes)
        if self._twins is not None:
            if self._isolation != "shared":
                self._bytes += packed
            self._estimate += _weight_of_all(writes)

    def take(self) -> list[Write]:
        """The writes, as objects the caller may keep and change; the list is the block's own."""
        if self._twins is None:
            twins = self._thaw()
        elif self._isolation == "shared" or not self._given or self._reusable(self._twins):
            twins = self._twins
        else:
            twins = self._twins = self._thaw()
            self._watch = None
        self._hand_out()
        return self._with_foreign(list(twins)) if self._foreign else twins

    def _hand_out(self) -> None:
        self._given = len(self.task_ids)
        self._given_bytes, self._given_fields = len(self._frozen), len(self._fields)

    def _with_foreign(self, writes: list[Write]) -> list[Write]:
        """Put the values in that are decoded anew at each read."""
        for index, data in self._foreign.items():
            value = self._serde.loads_typed(data)
            writes[index] = (self.task_ids[index], self._channel, value)
        return writes

    def copies(self) -> list[Write]:
        """The writes as objects of their own; the twins, in `"shared"` mode."""
        if self._isolation == "shared":
            return list(self._twins or ())
        return self._with_foreign(self._thaw())

    def _reusable(self, twins: list[Write]) -> bool:
        """Whether the twins may be given again; few of them are sooner made than looked at.

        Those that nobody was given yet need no look: whoever brought them may still be at it.
        """
        given = self._given
        if not _REUSE or len(twins) + len(self._fields) < _FEW:
            return False
        watch = self._watch
        if watch is None:
            self.held = _looks_held(twins[0]) or _looks_held(twins[given - 1])
            if self.held:
                return False
            watch, self._containers = _Watch(), 0
        known = len(watch)
        if known < given:
            try:
                self._containers += watch.extend(twins[known:given], self._shapes[known:given])
            except Unkeepable:
                return False
            self._watch, self._estimate = watch, _weight_of_all(twins[given:])
        self.held = not watch.unheld()
        frozen, fields = self._frozen[: self._given_bytes], self._fields[: self._given_fields]
        return not self.held and watch.unchanged(frozen, fields)

    def _thaw(self) -> list[Write]:
        """Fresh objects, made from the frozen form."""
        fields = iter(self._fields)
        channel = self._channel
        out: list[Write] = []
        values = ormsgpack.unpackb(_header(len(self.task_ids)) + self._frozen)
        for task_id, shape, part in zip(self.task_ids, self._shapes, values, strict=True):
            if shape is None:
                value = part
            elif type(shape) is _Only:
                value = [_message(shape.kind, next(fields), part)]
            elif type(shape) is tuple:
                value = [
                    _message(kind, next(fields), item) if kind else item
                    for kind, item in zip(shape, part, strict=True)
                ]
            else:
                value = _message(shape, next(fields), part)
            out.append((task_id, channel, value))
        return out


_WEIGHED: dict[type, tuple[int, float]] = {}
"""Per message class how many were seen, and what one of them weighs."""


def _weight_of_all(writes: Sequence[Write]) -> int:
    """Bytes of the writes' containers: of many from a few, of few by others of their kind."""
    values = [value for _, _, value in writes]
    return _sampled(values) if len(values) > _SAMPLED else sum(map(_usual_weight, values))


def _sampled(items: Sequence[Any]) -> int:
    """Bytes of the containers of many items, from a few of them."""
    count = len(items)
    samples = min(_SAMPLED, count // 12)
    sampled = [items[int(count * (i * _GOLDEN % 1))] for i in range(samples)]
    return sum(map(_weight, sampled)) * count // samples


def _usual_weight(value: Any) -> int:
    kind = type(value[0]) if type(value) is list and len(value) == 1 else type(value)
    if kind in _ATOMS or not _is_message_class(kind):
        return _weight(value)
    seen, mean = _WEIGHED.get(kind, (0, 0.0))
    if seen < _SAMPLED or not seen % _SAMPLED:
        weight = _weight(value)
        mean = mean + (weight - mean) / 4 if seen else weight
    _WEIGHED[kind] = (seen + 1, mean)
    return int(mean)


def _weight(value: Any) -> int:
    """Bytes of the containers in `value`; what its strings and numbers weigh is told elsewhere."""
    kind = type(value)
    if kind in _ATOMS:
        return 0
    size = sys.getsizeof(value)
    if kind is dict:
        return size + sum(map(_weight, value.values()))
    if kind is list or kind is tuple:
        return size + (_sampled(value) if len(value) > _LONG else sum(map(_weight, value)))
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__"):
        part = getattr(value, name, None)
        size += _weight(part) if type(part) is dict else sys.getsizeof(part)
    return size


def _try_pack(tree: list[Any]) -> bytes:
    try:
        return _pack(tree)
    except (TypeError, ValueError):
        return b""


def _keeps_types(part: Any, *, strict: bool) -> bool:
    """Whether packing `part` and reading it back gives the same types."""
    return (
        type(part) is not bytearray and (not strict or _only_plain(part)) and bool(_try_pack(part))
    )


def _serialised(serde: Serde, value: Any) -> tuple[str, bytes]:
    try:
        kind, data = serde.dumps_typed(value)
        return kind, bytes(data)  # a bytearray is given as the very object
    except Exception as error:
        raise Unkeepable from error


def _looks_held(twin: Write) -> bool:
    """A cheap look at one write, before a watch is built over many."""
    value = twin[2]
    if type(value) is list and value:
        value = value[-1]
    # its container and the local name hold it
    return type(value) not in _ATOMS and _references([value])[0] > _OVERHEAD + 3


_OVERHEAD = _overhead()
_REUSE = twins_can_be_reused()
