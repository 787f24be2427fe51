"""Histories as shared prefixes: a seed and one growing list of writes serve many checkpoints.

Between two stored values the histories of consecutive checkpoints are prefixes of one
another, so a checkpoint's history is a `Position`: a `Segment` and a length. A `View` holds
the segments decoded in one way (a serialiser with its allowlist).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver.history.facts import ROW_BYTES, Packed, Row
from deerflow_saver.history.isolation import Block, Isolation, Serde, Write

__all__ = ["Position", "Seed", "Segment", "View"]

_POSITION_BYTES = 340
_VIEW_BYTES = 600


class Seed:
    """The stored value a history starts from, isolated like the writes."""

    __slots__ = ("_block", "_snapshot")

    def __init__(self, value: Any, serde: Serde, isolation: Isolation, *, given: bool) -> None:
        """Keep a freshly decoded value; `given` if its first reader gets this object."""
        self._snapshot = isinstance(value, _DeltaSnapshot)
        inner = value.value if self._snapshot else value
        self._block = Block(serde, isolation)
        self._block.append([("", "", inner)], given=given)

    @property
    def kind(self) -> str:
        """`"snapshot"`, or `"legacy_plain"` for a value stored before the channel was delta."""
        return "snapshot" if self._snapshot else "legacy_plain"

    def take(self) -> Any:
        """The value, as an object the caller may keep and change."""
        value = self._block.take()[0][2]
        return _DeltaSnapshot(value) if self._snapshot else value

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._block.size


class Segment:
    """A seed and a growing list of writes, shared by the histories of a line of checkpoints."""

    __slots__ = ("_block", "_isolation", "_serde", "_waiting", "ends", "length", "seed")

    def __init__(self, serde: Serde, isolation: Isolation, seed: Seed | None = None) -> None:
        self._serde = serde
        self._isolation = isolation
        self.seed = seed
        self._block = Block(serde, isolation)
        self._waiting: list[Write | Row] = []
        self.length = 0
        self.ends: dict[str, int] = {}
        """Where the own writes of a checkpoint end."""

    def extend(self, writes: Sequence[Write | Row]) -> None:
        """Append own writes; rows are decoded when first read."""
        self._waiting.extend(writes)
        self.length += len(writes)

    def adopt(self, writes: Sequence[Write], *, given: bool = True) -> None:
        """Take over freshly decoded writes; `given` if their first reader gets these objects."""
        self._block.append(writes, given=given)
        self.length = len(self._block)

    def take(self, length: int) -> list[Write]:
        """The first `length` writes, isolated."""
        self.decode()
        return self._block.take()[:length] if length else []

    @property
    def held(self) -> bool:
        """Whether somebody, or garbage, held the objects when they were last looked at."""
        return self._block.held

    def task_ids(self, start: int, stop: int) -> tuple[str, ...]:
        """Task ids of the writes in [start, stop)."""
        self.decode()
        return tuple(self._block.task_ids[start:stop])

    def fork(self, length: int) -> Segment:
        """A new segment with the same seed and the first `length` writes."""
        new = Segment(self._serde, self._isolation, self.seed)
        new.ends = {cid: end for cid, end in self.ends.items() if end <= length}
        if length:
            self.decode()
            new.adopt(self._block.copies()[:length], given=False)
        return new

    def decode(self) -> None:
        """Decode the rows that wait for their first reader."""
        if self._waiting:
            self._block.append(
                [
                    (
                        item.task_id,
                        item.channel,
                        self._serde.loads_typed((item.value.kind, item.value.data)),
                    )
                    if type(item) is Row
                    else item  # type: ignore[misc]
                    for item in self._waiting
                ]
            )
            self._waiting = []

    @property
    def size(self) -> int:
        """Bytes held, waiting rows included."""
        waiting = sum(
            ROW_BYTES + len(item.value.data) if type(item) is Row else ROW_BYTES
            for item in self._waiting
        )
        return self._block.size + waiting + (self.seed.size if self.seed is not None else 0)


class Position(NamedTuple):
    """A history: the first `length` writes of `segment`, on its seed."""

    segment: Segment
    length: int


@dataclass
class View:
    """Histories decoded in one way. `after[p, c]` is the history of any child of `p`."""

    serde: Serde
    isolation: Isolation

    def __post_init__(self) -> None:
        self.after: dict[tuple[str, str], Position] = {}
        self.direct: dict[tuple[str, str], Position] = {}
        self._seeds: dict[str, tuple[Any, Seed]] = {}
        self._used: OrderedDict[Segment, int] = OrderedDict()
        self._bytes = 0

    def segment(self) -> Segment:
        """A new segment of this view, without a seed."""
        return Segment(self.serde, self.isolation)

    def seeded(self, value: Any, *, given: bool = True) -> Segment:
        """A new segment that starts from the stored `value`; see `Seed`."""
        seed = Seed(value, self.serde, self.isolation, given=given)
        return Segment(self.serde, self.isolation, seed)

    def seed(self, channel: str, key: Any) -> Seed | None:
        """The channel's newest seed, if it is the value stored under `key`."""
        known, seed = self._seeds.get(channel, (None, None))
        return seed if known == key else None

    def keep_seed(self, channel: str, key: Any, packed: Packed) -> Seed:
        """Decode the value stored under `key`; it serves every segment that starts there."""
        value = self.serde.loads_typed((packed.kind, packed.data))
        seed = Seed(value, self.serde, self.isolation, given=False)
        self._seeds[channel] = (key, seed)
        return seed

    def use(self, segment: Segment) -> None:
        """Note that `segment` was read or has grown."""
        size = segment.size
        self._bytes += size - self._used.get(segment, 0)
        self._used[segment] = size
        self._used.move_to_end(segment)

    def drop_oldest(self) -> bool:
        """Forget the least recently used segment; False when only one is left."""
        if len(self._used) < 2:  # noqa: PLR2004 - the last one is the thread's present
            return False
        segment, size = self._used.popitem(last=False)
        self._bytes -= size
        for table in (self.after, self.direct):
            for key in [k for k, position in table.items() if position.segment is segment]:
                del table[key]
        return True

    @property
    def size(self) -> int:
        """Bytes of all segments and positions; a seed shared by two segments counts twice."""
        positions = len(self.after) + len(self.direct)
        return _VIEW_BYTES + positions * _POSITION_BYTES + self._bytes
