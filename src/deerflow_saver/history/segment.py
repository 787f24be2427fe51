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

from deerflow_saver.history.facts import ROW_BYTES, Row
from deerflow_saver.history.isolation import Block, Isolation, Serde, Write

__all__ = ["Position", "Seed", "Segment", "View"]

_POSITION_BYTES = 260
_MERGE_BELOW = 128


class Seed:
    """The stored value a history starts from, isolated like the writes."""

    __slots__ = ("_block", "_snapshot")

    def __init__(self, value: Any, serde: Serde, isolation: Isolation) -> None:
        self._snapshot = isinstance(value, _DeltaSnapshot)
        inner = value.value if self._snapshot else value
        self._block = Block([("", "", inner)], serde, isolation)

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

    __slots__ = ("_blocks", "_bounds", "_isolation", "_serde", "_waiting", "ends", "length", "seed")

    def __init__(self, serde: Serde, isolation: Isolation, seed: Seed | None = None) -> None:
        self._serde = serde
        self._isolation = isolation
        self.seed = seed
        self._blocks: list[Block] = []
        self._bounds: list[int] = []
        self._waiting: list[Write | Row] = []
        self.length = 0
        self.ends: dict[str, int] = {}
        """Where the own writes of a checkpoint end."""

    def extend(self, writes: Sequence[Write | Row]) -> None:
        """Append own writes; rows are decoded when first read."""
        self._waiting.extend(writes)
        self.length += len(writes)

    def adopt(self, writes: list[Write]) -> None:
        """Take over a freshly decoded list, whose objects its reader will hold as twins."""
        self._blocks = [Block(list(writes), self._serde, self._isolation)] if writes else []
        self._bounds = [len(writes)] if writes else []
        self.length = len(writes)

    def take(self, length: int) -> list[Write]:
        """The first `length` writes, isolated."""
        self._decode()
        if len(self._blocks) == 1:
            return self._blocks[0].take()[:length]
        out: list[Write] = []
        for block in self._blocks:
            if len(out) >= length:
                break
            out += block.take()
        return out[:length]

    def task_ids(self, start: int, stop: int) -> tuple[str, ...]:
        """Task ids of the writes in [start, stop)."""
        self._decode()
        heads: list[tuple[str, str]] = []
        for block in self._blocks:
            heads += block.heads
        return tuple(task_id for task_id, _ in heads[start:stop])

    def fork(self, length: int) -> Segment:
        """A new segment with the same seed and the first `length` writes."""
        new = Segment(self._serde, self._isolation, self.seed)
        new.ends = {cid: end for cid, end in self.ends.items() if end <= length}
        if length:
            self._decode()
            blocks: list[Block] = []
            bounds: list[int] = []
            for block, bound in zip(self._blocks, self._bounds, strict=True):
                if bound > length:
                    rest = length - (bounds[-1] if bounds else 0)
                    if rest:
                        thawed = block.take()[:rest]
                        block.drop_twins()
                        blocks.append(Block(thawed, self._serde, self._isolation))
                        bounds.append(length)
                    break
                blocks.append(block)
                bounds.append(bound)
            new._blocks, new._bounds, new.length = blocks, bounds, length
        return new

    def _decode(self) -> None:
        if not self._waiting:
            return
        fresh: list[Write] = [
            (
                item.task_id,
                item.channel,
                self._serde.loads_typed((item.value.kind, item.value.data)),
            )
            if type(item) is Row
            else item  # type: ignore[misc]
            for item in self._waiting
        ]
        blocks, bounds = self._blocks, self._bounds
        if blocks and len(blocks[-1]) + len(fresh) <= _MERGE_BELOW:
            fresh = blocks[-1].take() + fresh
            blocks, bounds = blocks[:-1], bounds[:-1]
        block = Block(fresh, self._serde, self._isolation)
        self._blocks = [*blocks, block]
        self._bounds = [*bounds, (bounds[-1] if bounds else 0) + len(fresh)]
        self._waiting = []

    @property
    def size(self) -> int:
        """Bytes held, waiting rows included."""
        waiting = sum(
            ROW_BYTES + len(item.value.data) if type(item) is Row else ROW_BYTES
            for item in self._waiting
        )
        seed = self.seed.size if self.seed is not None else 0
        return seed + waiting + sum(block.size for block in self._blocks)


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
        self._used: OrderedDict[Segment, None] = OrderedDict()

    def segment(self) -> Segment:
        """A new segment of this view, without a seed."""
        return Segment(self.serde, self.isolation)

    def seeded(self, value: Any) -> Segment:
        """A new segment that starts from the stored `value`."""
        return Segment(self.serde, self.isolation, Seed(value, self.serde, self.isolation))

    def use(self, segment: Segment) -> None:
        """Note that `segment` was read."""
        self._used[segment] = None
        self._used.move_to_end(segment)

    def drop_oldest(self) -> bool:
        """Forget the least recently used segment; False when only one is left."""
        if len(self._used) < 2:  # noqa: PLR2004 - the last one is the thread's present
            return False
        segment, _ = self._used.popitem(last=False)
        for table in (self.after, self.direct):
            for key in [k for k, position in table.items() if position.segment is segment]:
                del table[key]
        return True

    @property
    def size(self) -> int:
        """Bytes of all segments and positions; a seed shared by two segments counts twice."""
        positions = len(self.after) + len(self.direct)
        return positions * _POSITION_BYTES + sum(segment.size for segment in self._used)
