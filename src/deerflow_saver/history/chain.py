"""What is known about one (thread, namespace): facts, and the histories built from them.

Pure bookkeeping: nothing here performs I/O, and no method may be called without the
chain's lock. Two layers:

*Facts* hold for everybody: who is whose parent, which checkpoint stores a value for a
channel, which writes a checkpoint owns (in serialised form). They are learnt from what
passes through the saver.

*Views* hold the decoded histories for one way of decoding (a serialiser with its
allowlist). Between two stored values the histories of consecutive checkpoints are
prefixes of one another, so a view keeps one growing `Segment` for all of them: a
checkpoint's history is (segment, length).

Rules the facts rest on (LangGraph's, see `BaseCheckpointSaver.get_delta_channel_history`):
a checkpoint's history is its parent's plus the parent's own writes, or, where the parent
stores a value, that value plus the parent's own writes. Own writes of a delta channel are
final once the checkpoint has a child; a write that arrives later makes the chain forget
everything.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver.history.isolation import Block, Isolation, Serde, Write

__all__ = [
    "ABSENT",
    "HELD",
    "Chain",
    "Fetched",
    "Need",
    "Packed",
    "Position",
    "Row",
    "View",
    "Writing",
]

_NODE_BYTES = 720
_POSITION_BYTES = 260
_ROW_BYTES = 330
_MERGE_BELOW = 128

ABSENT = "absent"
"""The checkpoint stores no value for the channel."""
HELD = "held"
"""The checkpoint stores a value for the channel, but the value is not known here."""


class Packed(NamedTuple):
    """A value in the wrapped saver's serialised form."""

    kind: str
    data: bytes


class Row(NamedTuple):
    """One own write of a checkpoint, as `put_writes` gave it."""

    path: str
    task_id: str
    idx: int
    channel: str
    value: Packed


class Need(NamedTuple):
    """A checkpoint whose row must be read before a history can be composed."""

    checkpoint_id: str
    known: bool
    """Whether its parent is known, so that composing goes on beyond it."""


class Node:
    """Facts about one checkpoint."""

    __slots__ = (
        "busy", "depth", "final", "parent", "read", "rows", "step", "stored", "taken", "tracked",
    )  # fmt: skip

    def __init__(self, tracked: frozenset[str]) -> None:
        self.tracked = tracked
        """Channels whose writes were recorded from this checkpoint's beginning."""
        self.parent: str | None = None
        self.step: int | None = None
        self.depth: int | None = None
        """Supersteps since the last snapshot, as the checkpoint's metadata tells."""
        self.stored: dict[str, tuple[str, Any] | str] = {}
        """Per channel: `ABSENT`, `HELD`, or the key under which the value is known."""
        self.rows: dict[tuple[str, int], Row] | None = None
        """All own writes of the tracked channels, or None when not all are known."""
        self.read: dict[str, tuple[str, ...]] | None = None
        """Task ids of the own writes per channel, as a read of the row showed them."""
        self.taken: dict[str, tuple[str, ...]] = {}
        """Task ids of own writes that moved into a view's segment."""
        self.busy = 0
        """Writes on this checkpoint that are under way."""
        self.final = False
        """Whether `rows` was complete when the first child was stored."""


class Writing(NamedTuple):
    """A `put_writes` under way."""

    node: Node | None
    """Where to record the rows; None if the write came too late to be recorded."""
    generation: int


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
            blocks, bounds = [], []
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
            (item.task_id, item.channel, self._serde.loads_typed(tuple(item.value)))
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
            _ROW_BYTES + len(item.value.data) if type(item) is Row else _ROW_BYTES
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


class Chain:
    """Everything known about one (thread, namespace)."""

    def __init__(self, channels: Iterable[str], *, ordered: bool, seeds_by_version: bool) -> None:
        """Start empty.

        Args:
            channels: names of delta channels to record from the start.
            ordered: whether the wrapped saver orders own writes by
                `(task_path, task_id, idx)` (LangGraph's `writes_sort_key`); where that
                is not known, own writes are used only if the path makes no difference.
            seeds_by_version: whether a checkpoint's stored value is found by its channel
                version (memory, Postgres) or inline in its row (SQLite).

        """
        self.lock = threading.Lock()
        self.channels = frozenset(channels)
        self.generation = 0
        self.serial = 0
        """Grows with every write that begins or ends; a read that spans one teaches nothing."""
        self.closed = False
        self.measured = 0
        """Bytes when last measured, for the cache's accounts."""
        self.seedless_walks = 0
        self._distrusted_until = 0.0
        self._ordered = ordered
        self._by_version = seeds_by_version
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, str] = {}
        self._blobs: dict[tuple[str, Any], Packed | str] = {}
        self._putting: set[str] = set()
        self._pending: dict[str, Node] = {}
        self._views: dict[Any, View] = {}
        self._newest = ""
        self._roots: set[str] = set()
        self._row_bytes = 0

    # -- forgetting -------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything; whoever is reading now may not teach what it reads."""
        self.generation += 1
        self.serial += 1
        for table in (
            self._nodes, self._children, self._blobs, self._pending, self._views, self._roots,
        ):  # fmt: skip
            table.clear()
        self._newest = ""
        self._row_bytes = 0

    def close(self) -> None:
        """Forget everything for good: the thread was purged or evicted."""
        self.clear()
        self.closed = True

    def distrust(self, seconds: float) -> None:
        """A write ended without telling whether it was stored: forget, and learn nothing for a while."""
        self.clear()
        self._distrusted_until = time.monotonic() + seconds

    @property
    def trusted(self) -> bool:
        """Whether the chain may serve and learn."""
        return not self.closed and time.monotonic() >= self._distrusted_until

    def trim(self, limit: int) -> None:
        """Drop what was used longest ago until the chain holds at most `limit` bytes."""
        for view in self._views.values():
            while self.size > limit and view.drop_oldest():
                pass
        if self.size > limit:
            self.clear()

    @property
    def size(self) -> int:
        """Bytes held."""
        nodes = (len(self._nodes) + len(self._pending)) * _NODE_BYTES
        return nodes + self._row_bytes + sum(view.size for view in self._views.values())

    # -- learning from writes ---------------------------------------------------------

    def track(self, channels: Iterable[str]) -> None:
        """Record the writes of these channels from now on."""
        if not self.channels.issuperset(channels):
            self.channels |= frozenset(channels)

    def untrack(self, channels: Iterable[str]) -> None:
        """Stop recording channels that proved to be stored in full."""
        self.channels -= frozenset(channels)

    def begin_put(self, checkpoint_id: str) -> bool:
        """Before a put: False if it may rewrite what is known (a put over an old id)."""
        self.serial += 1
        if checkpoint_id in self._nodes or checkpoint_id <= self._newest:
            self.clear()
            return False
        self._putting.add(checkpoint_id)
        return True

    def end_put(self, checkpoint_id: str, *, clean: bool) -> None:
        """After a put, stored or not; an unclean one leaves nothing known."""
        self.serial += 1
        self._putting.discard(checkpoint_id)
        if not clean:
            self.clear()

    def born(
        self,
        checkpoint_id: str,
        parent: str | None,
        stored: Mapping[str, Packed | str],
        *,
        versions: Mapping[str, Any],
        new_versions: Mapping[str, Any],
        step: int | None,
        depth: int | None,
        fresh: bool,
    ) -> None:
        """A new checkpoint was stored through this saver.

        `stored` has, per tracked channel, `ABSENT`, `HELD` or the packed value, as this
        put stored it. `fresh` says that the id was made after this saver, so that no row
        of it can exist that did not pass through here.
        """
        node = self._pending.pop(checkpoint_id, None) or Node(self.channels)
        if not fresh:
            node.rows = None
        elif node.rows is None and not node.busy:
            node.rows = {}
        node.parent, node.step, node.depth = parent, step, depth
        for channel in self.channels:
            put = stored.get(channel, HELD)
            version = versions.get(channel) if self._by_version else checkpoint_id
            moved = channel in new_versions if self._by_version else True
            node.stored[channel] = self._stored_at(channel, put, version, moved=moved)
        self._nodes[checkpoint_id] = node
        self._newest = max(self._newest, checkpoint_id)
        if parent is None:
            self._roots.add(checkpoint_id)
        else:
            self._child(parent, checkpoint_id, ours=True)

    def _stored_at(
        self, channel: str, put: Packed | str, version: Any, *, moved: bool
    ) -> tuple[str, Any] | str:
        """How a checkpoint stores a channel: `ABSENT`, `HELD`, or a key of the known values."""
        if version is None:
            return ABSENT if put is ABSENT else HELD
        key = (channel, version)
        if moved:
            if type(put) is Packed:
                self._let_go(channel)  # older ones are rarely asked for
                self._row_bytes += len(put.data)
            self._blobs[key] = put
            return key
        return key if put is ABSENT and key in self._blobs else HELD

    def _child(self, parent: str, child: str, *, ours: bool) -> None:
        node = self._nodes.get(parent)
        if node is not None and ours and parent not in self._children:
            node.final = node.rows is not None and not node.busy
        self._children[parent] = child

    def begin_rows(self, checkpoint_id: str, channels: Iterable[str]) -> Writing | None:
        """Before a `put_writes`; None if it carries no recorded channel.

        A write on a checkpoint that others already build on makes the chain forget.
        """
        if self.channels.isdisjoint(channels):
            return None
        self.serial += 1
        node = self._nodes.get(checkpoint_id)
        if checkpoint_id in self._children or (node and checkpoint_id != self._newest):
            self.clear()
            return Writing(None, self.generation)
        if node is None:
            # Either its own put is still under way, or it is an old checkpoint unknown
            # here. Which of the two shows when the put arrives, or when somebody reads.
            node = self._pending.get(checkpoint_id)
            if node is None:
                node = self._pending[checkpoint_id] = Node(self.channels)
                node.rows = {}
        node.busy += 1
        return Writing(node, self.generation)

    def end_rows(self, checkpoint_id: str, writing: Writing, rows: Iterable[Row] | None) -> None:
        """After a `put_writes`: record `rows`, or with None that they are not known."""
        self.serial += 1
        node = writing.node
        if node is not None:
            node.busy -= 1
        if node is None or checkpoint_id in self._children:
            self.clear()
            return
        if writing.generation != self.generation:
            return
        node.read = None
        if rows is None or node.rows is None:
            node.rows = None
            return
        for row in rows:
            # LangGraph's savers keep the first write of a (task id, idx)
            if node.rows.setdefault((row.task_id, row.idx), row) is row:
                self._row_bytes += _ROW_BYTES + len(row.value.data)

    # -- learning from reads ----------------------------------------------------------

    def seen(
        self,
        checkpoint_id: str,
        parent: str | None,
        stored: Iterable[str],
        own: Iterable[Write],
        *,
        step: int | None,
        depth: int | None,
        had_child: bool,
    ) -> None:
        """A row read for somebody else: links, which channels it stores, whose writes it owns.

        Values are not kept, they belong to the reader. `had_child` says whether a child
        was known before the row was read.
        """
        if checkpoint_id in self._putting or checkpoint_id in self._pending:
            return
        node = self._nodes.get(checkpoint_id)
        by_channel: dict[str, list[str]] = {}
        for task_id, channel, _ in own:
            if channel in self.channels:
                by_channel.setdefault(channel, []).append(task_id)
        if node is None:
            node = self._nodes[checkpoint_id] = Node(self.channels)
            node.parent, node.step, node.depth = parent, step, depth
            present = set(stored)
            node.stored = {c: HELD if c in present else ABSENT for c in self.channels}
            self._newest = max(self._newest, checkpoint_id)
            if parent is None:
                self._roots.add(checkpoint_id)
            else:
                self._child(parent, checkpoint_id, ours=False)
        elif node.parent != parent:
            self.clear()
            return
        if node.busy or node.taken:
            return
        if node.rows is None or node.tracked != self.channels or not _same(node.rows, by_channel):
            node.rows = None if by_channel else {}
            node.tracked = self.channels
        node.final = had_child and node.rows is not None
        node.read = {c: tuple(ids) for c, ids in by_channel.items()} if had_child else None

    def has_child(self, checkpoint_id: str) -> bool:
        """Whether a child of the checkpoint is known."""
        return checkpoint_id in self._children

    def knows(self, checkpoint_id: str) -> bool:
        """Whether the checkpoint was put or read through this saver."""
        return checkpoint_id in self._nodes

    def settle(self) -> None:
        """Before a read: writes on checkpoints never put here were late ones after all."""
        if any(cid not in self._putting for cid in self._pending):
            self.clear()

    # -- composing --------------------------------------------------------------------

    def view(self, token: Any, make: Callable[[], View]) -> View:
        """The histories decoded in the way `token` names."""
        view = self._views.get(token)
        if view is None:
            view = self._views[token] = make()
        return view

    def depth(self, checkpoint_id: str) -> int | None:
        """Supersteps since the last snapshot, where the checkpoint's metadata was seen."""
        node = self._nodes.get(checkpoint_id)
        return None if node is None else node.depth

    def gap(self, checkpoint_id: str) -> int | None:
        """Steps from the newest known earlier checkpoint to this one; None if unknown."""
        target = self._nodes.get(checkpoint_id)
        if target is None or target.step is None:
            return None
        steps = [
            node.step
            for cid, node in self._nodes.items()
            if node.step is not None and node.step < target.step and cid < checkpoint_id
        ]
        return target.step - max(steps) if steps else None

    def find(self, view: View, checkpoint_id: str, channel: str) -> Position | None:
        """The history if it is at hand, or one step off a child's."""
        position = self._at_hand(view, checkpoint_id, channel)
        if position is None:
            position = self._shortened(view, checkpoint_id, channel)
            if position is not None:
                view.direct[checkpoint_id, channel] = position
        return position

    def _at_hand(self, view: View, checkpoint_id: str, channel: str) -> Position | None:
        node = self._nodes.get(checkpoint_id)
        if node is not None:
            if node.parent is None:
                return Position(view.segment(), 0) if checkpoint_id in self._roots else None
            position = view.after.get((node.parent, channel))
            if position is not None:
                return position
        return view.direct.get((checkpoint_id, channel))

    def _shortened(self, view: View, checkpoint_id: str, channel: str) -> Position | None:
        """A child's history without this checkpoint's own writes."""
        child = self._children.get(checkpoint_id)
        node = self._nodes.get(checkpoint_id)
        if child is None or node is None or self._seed(checkpoint_id, channel, {}) is not ABSENT:
            return None
        longer = self._at_hand(view, child, channel)
        own = self._own_task_ids(node, channel)
        if longer is None or own is None:
            return None
        start = longer.length - len(own)
        if start < 0 or longer.segment.task_ids(start, longer.length) != own:
            return None
        return Position(longer.segment, start)

    def _own_task_ids(self, node: Node, channel: str) -> tuple[str, ...] | None:
        if channel in node.taken:
            return node.taken[channel]
        if channel not in node.tracked:
            return None
        if node.read is not None:
            return node.read.get(channel, ())
        own = self._own(node, channel)
        return None if own is None else tuple(row.task_id for row in own)

    def compose(
        self, view: View, checkpoint_id: str, channel: str, fetched: Mapping[str, Fetched]
    ) -> Position | list[Need]:
        """The history from what is known, or the checkpoints that must be read for it.

        `fetched` holds rows that were read for this purpose, values included.
        """
        path: list[str] = []
        needs: list[Need] = []
        current, seed = checkpoint_id, ABSENT
        while (position := self.find(view, current, channel)) is None:
            parent, known = self._parent(current, fetched)
            if not known or parent in path:  # a loop: a put over an old id can make one
                return [*needs, Need(current, known=False)]
            if parent is None:
                position = Position(view.segment(), 0)
                break
            path.append(parent)
            seed = self._seed(parent, channel, fetched)
            if seed is HELD or not self._own_known(parent, channel, fetched):
                needs.append(Need(parent, known=self._parent(parent, fetched)[1]))
                if seed is HELD or not needs[-1].known:
                    return needs
            if seed is not ABSENT:
                break
            current = parent
        if needs:
            return needs
        if position is None:
            position = Position(view.seeded(self._decoded(view, channel, seed)), 0)
        for parent in reversed(path):
            position = self._extend(view, position, parent, channel, fetched)
        return position

    def _parent(
        self, checkpoint_id: str, fetched: Mapping[str, Fetched]
    ) -> tuple[str | None, bool]:
        if checkpoint_id in fetched:
            return fetched[checkpoint_id].parent, True
        node = self._nodes.get(checkpoint_id)
        return (None, False) if node is None else (node.parent, True)

    def _seed(self, checkpoint_id: str, channel: str, fetched: Mapping[str, Fetched]) -> Any:
        """`ABSENT`, `HELD`, a `Packed` value, or a `Decoded` one."""
        if checkpoint_id in fetched:
            values = fetched[checkpoint_id].values
            return Decoded(values[channel]) if channel in values else ABSENT
        node = self._nodes.get(checkpoint_id)
        stored = HELD if node is None else node.stored.get(channel, HELD)
        return self._blobs.get(stored, HELD) if type(stored) is tuple else stored

    def _decoded(self, view: View, channel: str, seed: Any) -> Any:
        if isinstance(seed, Decoded):
            return seed.value
        self._let_go(channel)  # the view keeps it from now on
        return view.serde.loads_typed(tuple(seed))

    def _let_go(self, channel: str) -> None:
        """Forget the packed seeds of a channel; that they are stored stays known."""
        for key, value in self._blobs.items():
            if key[0] == channel and type(value) is Packed:
                self._row_bytes -= len(value.data)
                self._blobs[key] = HELD

    def _own_known(self, checkpoint_id: str, channel: str, fetched: Mapping[str, Fetched]) -> bool:
        if checkpoint_id in fetched:
            return True
        node = self._nodes.get(checkpoint_id)
        return node is not None and node.final and self._own(node, channel) is not None

    def _own(self, node: Node, channel: str) -> list[Row] | None:
        """The channel's own writes in the order the saver replays them; None if not known."""
        if node.rows is None or channel not in node.tracked or channel in node.taken:
            return None
        rows = [row for row in node.rows.values() if row.channel == channel]
        ordered = sorted(rows, key=lambda row: (row.path, row.task_id, row.idx))
        if not self._ordered and ordered != sorted(rows, key=lambda row: (row.task_id, row.idx)):
            return None
        return ordered

    def _extend(
        self,
        view: View,
        position: Position,
        parent: str,
        channel: str,
        fetched: Mapping[str, Fetched],
    ) -> Position:
        segment, start = position
        end = segment.ends.get(parent)
        if end is None:
            if segment.length != start:
                segment = segment.fork(start)
            segment.extend(self._take_own(parent, channel, fetched))
            end = segment.ends[parent] = segment.length
        view.use(segment)
        position = Position(segment, end)
        view.after[parent, channel] = position
        return position

    def _take_own(
        self, parent: str, channel: str, fetched: Mapping[str, Fetched]
    ) -> Sequence[Write | Row]:
        if parent in fetched:
            return [write for write in fetched[parent].own if write[1] == channel]
        node = self._nodes[parent]
        own = self._own(node, channel) or []
        node.taken[channel] = tuple(row.task_id for row in own)
        for row in own:
            del node.rows[row.task_id, row.idx]  # type: ignore[union-attr]
            self._row_bytes -= _ROW_BYTES + len(row.value.data)
        return own

    def remember(self, view: View, checkpoint_id: str, channel: str, position: Position) -> None:
        """Keep a history that was read whole."""
        view.use(position.segment)
        node = self._nodes.get(checkpoint_id)
        if node is not None and node.parent is not None:
            view.after[node.parent, channel] = position
        else:
            view.direct[checkpoint_id, channel] = position
            self._newest = max(self._newest, checkpoint_id)


def _same(rows: Mapping[tuple[str, int], Row], by_channel: Mapping[str, Sequence[str]]) -> bool:
    """Whether the recorded rows are those that were read, as far as task ids tell."""
    known: dict[str, list[str]] = {}
    for row in rows.values():
        known.setdefault(row.channel, []).append(row.task_id)
    return {c: sorted(ids) for c, ids in known.items()} == {
        c: sorted(ids) for c, ids in by_channel.items()
    }


class Decoded(NamedTuple):
    """A seed read for us."""

    value: Any


class Fetched(NamedTuple):
    """A row read for composing: its parent, stored values and own writes, ours to keep."""

    parent: str | None
    values: Mapping[str, Any]
    own: Sequence[Write]
