"""Facts about one (thread, namespace), learnt from what passes through a saver.

Who is whose parent, which checkpoint stores a value for a channel, which writes a
checkpoint owns, in serialised form: facts hold for every reader, however it decodes.

Pure bookkeeping: nothing here performs I/O, and no method may be called without the lock.

Rules they rest on (LangGraph's, see `BaseCheckpointSaver.get_delta_channel_history`): a
checkpoint's history is its parent's plus the parent's own writes, or, where the parent
stores a value, that value plus the parent's own writes. Own writes of a delta channel are
final once the checkpoint has a child; a write that arrives later makes everything be
forgotten.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP

from deerflow_saver._tally import tally
from deerflow_saver.history.isolation import Write
from deerflow_saver.history.minting import now

__all__ = ["ABSENT", "HELD", "ROW_BYTES", "ChainBusy", "Facts", "Node", "Packed", "Row", "Writing"]

NODE_BYTES = 800
ROW_BYTES = 330
_UNRECORDED = 64
_NONE: frozenset[str] = frozenset()
_PATIENCE_SECONDS = 1.0
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

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


class Node:
    """Facts about one checkpoint."""

    __slots__ = (
        "busy", "depth", "final", "overdue", "parent", "read", "rows", "step", "stored", "taken",
        "tracked",
    )  # fmt: skip

    def __init__(self, tracked: Mapping[str, int]) -> None:
        self.tracked = tracked
        """Channels whose writes were recorded from this checkpoint's beginning, and since when."""
        self.parent: str | None = None
        self.step: int | None = None
        self.depth: int | None = None
        """Supersteps since the last snapshot, as the checkpoint's metadata tells."""
        self.overdue: frozenset[str] = _NONE
        """Channels that by the metadata should have been snapshot long since."""
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
    """Where to record the rows; None if they are not recorded."""
    generation: int
    late: bool = False
    """Whether the write came too late, so that everything is forgotten."""
    again: bool = False
    """Whether the task wrote there before: writes in a taken place a database drops."""


class ChainBusy(Exception):  # noqa: N818 - a signal inside this package
    """The chain's lock was not to be had; what passes meanwhile counts as unseen."""


class _Lock:
    """A lock that nobody waits for without end, and that forgets what was missed.

    Whoever holds it may be interrupted by the garbage collector, which may close a run that
    was left half-way, which waits for its saves, which want this lock: so a save that waited
    in vain goes on without it, and the next holder forgets everything first.
    """

    __slots__ = ("_facts", "_lock")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        # One waits; once somebody waited in vain, nobody else does
        patience = _PATIENCE_SECONDS if not self._facts.doubted else 0.0
        if not self._lock.acquire(timeout=patience):
            self._facts.doubted = True
            raise ChainBusy
        if self._facts.doubted:
            self._facts.doubted = False
            self._facts.clear()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Facts:
    """What is known about the checkpoints of one (thread, namespace)."""

    def __init__(
        self,
        since: Mapping[str, int],
        *,
        ordered: bool,
        seeds_by_version: bool,
        by_task: bool = False,
        clock: Callable[[], int] = now,
    ) -> None:
        """Start empty.

        Args:
            since: delta channels to record, each with a timestamp after which none of its
                writes passed unrecorded.
            ordered: whether the wrapped saver orders own writes by
                `(task_path, task_id, idx)` (LangGraph's `writes_sort_key`); where that
                is not known, own writes are used only if the path makes no difference.
            seeds_by_version: whether a checkpoint's stored value is found by its channel
                version (memory, Postgres) or inline in its row (SQLite).
            by_task: whether a saver that is not `ordered` orders them by `(task_id, idx)`.
            clock: gives a timestamp that is exceeded by every id made from now on.

        """
        self.lock = _Lock(self)
        self.doubted = False
        """Whether a call passed that could not be taken note of."""
        self._clock = clock
        self._since: Mapping[str, int] = dict(since)
        """Recorded channels, and the moment since when; replaced, never changed."""
        self._asked: frozenset[str] = frozenset()
        self.generation = 0
        self.serial = 0
        """Grows with every write that begins or ends; a read that spans one teaches nothing."""
        self.closed = False
        self.measured = 0
        """Bytes when last measured, for the cache's accounts."""
        self.seedless_walks = 0
        self._distrusted_until = 0.0
        self._ordered = ordered
        self._by_task = by_task
        self._by_version = seeds_by_version
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, str] = {}
        self._latest: dict[str, tuple[Any, Any]] = {}
        """Per channel the version put last, and how it is stored (as in `Node.stored`)."""
        self._seeds: dict[str, tuple[Any, Packed]] = {}
        """Per channel the newest stored value and its key, until a view takes it over."""
        self._putting: set[str] = set()
        self._pending: dict[str, Node] = {}
        self._unrecorded: dict[str, None] = {}
        """Checkpoints put here of which nothing else is known; the last few."""
        self._writers: dict[str, set[str]] = {}
        """Tasks that wrote anything on a checkpoint without children; the last few of these."""
        self._newest = ""
        self._roots: set[str] = set()
        self._row_bytes = 0
        self.epoch: str | None = None
        """The thread's epoch in a shared store, if all that is known was learnt in one."""
        self.outbox: dict[str, Any] = {}
        """What puts under way made shareable, by checkpoint."""

    # -- forgetting -------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything; whoever is reading now may not teach what it reads."""
        self.generation += 1
        self.serial += 1
        for table in (
            self._nodes, self._children, self._latest, self._seeds, self._pending,
            self._unrecorded, self._writers, self._roots, self.outbox,
        ):  # fmt: skip
            table.clear()
        self._newest = ""
        self._row_bytes = 0
        # Rows recorded so far are lost: only checkpoints made from now on are known in full
        self._since = dict.fromkeys(self._since, self._clock())

    def bind(self, epoch: str | None) -> None:
        """The shared store names the thread's epoch: forget what was learnt in another one.

        Without an epoch nobody could tell of a purge, so then nothing stays known.
        """
        if epoch is None or epoch != self.epoch:
            blank = not (
                self._nodes or self._children or self._pending or self._putting
                or self._unrecorded or self._newest
            )  # fmt: skip
            since = self._since
            self.clear()
            if blank:  # no recorded row was lost
                self._since = since
            self.epoch = epoch

    def close(self) -> None:
        """Forget everything for good: the thread was purged or evicted."""
        self.clear()
        self.closed = True

    def distrust(self, seconds: float) -> None:
        """Forget, and learn nothing for a while: a write ended in doubt, and may still arrive."""
        self.clear()
        self._distrusted_until = time.monotonic() + seconds

    @property
    def trusted(self) -> bool:
        """Whether the chain may serve and learn."""
        return not self.closed and time.monotonic() >= self._distrusted_until

    @property
    def size(self) -> int:
        """Bytes held."""
        return (len(self._nodes) + len(self._pending)) * NODE_BYTES + self._row_bytes

    # -- learning from writes ---------------------------------------------------------

    @property
    def channels(self) -> KeysView[str]:
        """Channels whose writes are recorded."""
        return self._since.keys()

    def ask(self, channels: Iterable[str]) -> None:
        """Somebody reads these channels' histories: record their writes from now on, always."""
        if not self._asked.issuperset(channels):
            self._asked |= frozenset(channels)
            self.track(channels)

    def track(self, channels: Iterable[str]) -> None:
        """Record the writes of these channels from now on."""
        new = [channel for channel in channels if channel not in self._since]
        if new:
            self._since = {**self._since, **dict.fromkeys(new, self._clock())}

    def untrack(self, channels: Iterable[str]) -> None:
        """Stop recording channels that are stored in full, unless somebody asked for them."""
        gone = (self._since.keys() & set(channels)) - self._asked
        if gone:
            self._since = {c: since for c, since in self._since.items() if c not in gone}

    def begin_put(self, checkpoint_id: str) -> bool:
        """Before a put: False if it may rewrite what is known (a put over an old id)."""
        self.serial += 1
        known = checkpoint_id in self._nodes or checkpoint_id in self._children
        if known or checkpoint_id <= self._newest:
            self.clear()
            return False
        self._putting.add(checkpoint_id)
        return True

    def leave_line(self, parent: str | None) -> None:
        """Before a put where branches may overwrite one another: forget if this one forks."""
        if parent in self._children or (parent or "") != self._newest:
            self.clear()

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
        minted: int | None,
        overdue: frozenset[str] = _NONE,
        witnessed: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        """A new checkpoint was stored through this saver.

        `stored` has, per recorded channel, `ABSENT`, `HELD` or the packed value, as this
        put stored it. `minted` tells when the id was made: of a channel that was recorded
        by then, no row of this checkpoint can exist that did not pass through here. Of an
        older id nothing is learnt: there may be a row of it, whose parent some savers keep.
        `witnessed` counts, per (task id, channel), the parent's writes in the database when
        it was stored: another process may have written there, too.
        """
        self._newest = max(self._newest, checkpoint_id)
        node = self._pending.pop(checkpoint_id, None)
        tracked = self._since
        if any(since >= (minted or 0) for since in tracked.values()):
            tracked = {c: since for c, since in tracked.items() if since < (minted or 0)}
        if not tracked:
            self._unrecorded[checkpoint_id] = None
            if len(self._unrecorded) > _UNRECORDED:
                del self._unrecorded[next(iter(self._unrecorded))]
            if parent is not None:
                self._child(parent, checkpoint_id, ours=False)
            return
        if witnessed is not None and parent in self._nodes:
            self._compare(self._nodes[parent], witnessed)
        if node is None:
            node = Node({})
            node.rows = {}
        node.tracked = tracked
        node.parent, node.step, node.depth, node.overdue = parent, step, depth, overdue
        for channel in self._since:
            put = stored.get(channel, HELD)
            version = versions.get(channel) if self._by_version else checkpoint_id
            moved = channel in new_versions if self._by_version else True
            node.stored[channel] = self._stored_at(channel, put, version, moved=moved)
        self._nodes[checkpoint_id] = node
        if parent is None:
            self._roots.add(checkpoint_id)
        else:
            self._child(parent, checkpoint_id, ours=True)

    def _stored_at(self, channel: str, put: Packed | str, version: Any, *, moved: bool) -> Any:
        """How a checkpoint stores a channel: `ABSENT`, `HELD`, or the key of a known value."""
        if version is None:
            return ABSENT if put is ABSENT else HELD
        if moved:
            stored: Any = put
            if type(put) is Packed:
                self._let_go(channel)
                stored = (channel, version)
                self._seeds[channel] = (stored, put)
                self._row_bytes += len(put.data)
            self._latest[channel] = (version, stored)
            return stored
        known, stored = self._latest.get(channel, (None, HELD))
        return stored if put is ABSENT and known == version else HELD

    def _compare(self, node: Node, witnessed: Mapping[tuple[str, str], int]) -> None:
        """What is known of own writes counts only if the database had no others."""
        if node.rows is None or node.taken:
            return
        known = tally([(row.task_id, row.channel) for row in node.rows.values()])
        if known == witnessed:
            return
        if any(witnessed.get(row, 0) != count for row, count in known.items()) or any(
            row[1] in node.tracked and known.get(row, 0) != count
            for row, count in witnessed.items()
        ):
            node.rows = node.read = None

    def _child(self, parent: str, child: str, *, ours: bool) -> None:
        node = self._nodes.get(parent)
        if node is not None and ours and parent not in self._children:
            node.final = node.rows is not None and not node.busy
        self._children[parent] = child
        self._writers.pop(parent, None)

    def begin_rows(
        self, checkpoint_id: str, channels: Iterable[str], task_id: str | None = None
    ) -> Writing | None:
        """Before a `put_writes`; None if it carries no recorded channel.

        A write on a checkpoint that others already build on makes the chain forget. `task_id`
        is that of writes which take places among the task's own, as all but special ones do.
        """
        self.serial += 1
        again = task_id is not None and self._wrote(checkpoint_id, task_id)
        if self._since.keys().isdisjoint(channels):
            return None
        node = self._nodes.get(checkpoint_id)
        if checkpoint_id in self._children or (node and checkpoint_id != self._newest):
            self.clear()
            return Writing(None, self.generation, late=True)
        if node is None and (checkpoint_id in self._unrecorded or checkpoint_id == self._newest):
            # Put, or read, here: it is the head, but not all of its writes are known
            return Writing(None, self.generation)
        if node is None:
            # Either its own put is still under way, or it is an old checkpoint unknown
            # here. Which of the two shows when the put arrives, or when somebody reads.
            node = self._pending.get(checkpoint_id)
            if node is None:
                node = self._pending[checkpoint_id] = Node({})
                node.rows = {}
        node.busy += 1
        return Writing(node, self.generation, again=again)

    def _wrote(self, checkpoint_id: str, task_id: str) -> bool:
        """Note that a task writes on a checkpoint; whether it did so before, if that matters."""
        if checkpoint_id in self._children:
            return False
        writers = self._writers.get(checkpoint_id)
        if writers is None:
            if len(self._writers) == _UNRECORDED:
                del self._writers[next(iter(self._writers))]
            writers = self._writers[checkpoint_id] = set()
        known = len(writers)
        writers.add(task_id)
        return len(writers) == known

    def end_rows(self, checkpoint_id: str, writing: Writing, rows: Iterable[Row] | None) -> None:
        """After a `put_writes`: record `rows`, or with None that they are not known."""
        self.serial += 1
        node = writing.node
        if node is not None:
            node.busy -= 1
        if writing.late or checkpoint_id in self._children:
            self.clear()
            return
        if writing.generation != self.generation:
            return
        if node is None:
            node, rows = self._nodes.get(checkpoint_id), None
            if node is None:
                return
        node.read = None
        if rows is None or node.rows is None:
            node.rows = None
            return
        rows = list(rows)
        if writing.again and any((row.task_id, row.idx) not in node.rows for row in rows):
            node.rows = None  # the place may be taken by a channel that is not recorded
            return
        for row in rows:
            # LangGraph's savers keep the first write of a (task id, idx)
            if node.rows.setdefault((row.task_id, row.idx), row) is row:
                self._row_bytes += ROW_BYTES + len(row.value.data)

    # -- learning from reads ----------------------------------------------------------

    def seen(
        self,
        checkpoint_id: str,
        parent: str | None,
        stored: Iterable[str],
        own: Iterable[Write],
        *,
        versions: Mapping[str, Any],
        step: int | None,
        depth: int | None,
        had_child: bool,
        overdue: frozenset[str] = _NONE,
    ) -> None:
        """A row read for somebody else: links, which channels it stores, whose writes it owns.

        Values are not kept, they belong to the reader. `versions` are the channels';
        `had_child` says whether a child was known before the row was read.
        """
        if checkpoint_id in self._putting or checkpoint_id in self._pending:
            return
        node = self._nodes.get(checkpoint_id)
        by_channel: dict[str, list[str]] = {}
        for task_id, channel, _ in own:
            if channel in self._since:
                by_channel.setdefault(channel, []).append(task_id)
            if channel not in WRITES_IDX_MAP and checkpoint_id >= self._newest:
                self._wrote(checkpoint_id, task_id)
        if node is None:
            node = self._met(checkpoint_id, parent, stored, versions)
            node.step, node.depth, node.overdue = step, depth, overdue
        elif node.parent != parent:
            self.clear()
            return
        if node.busy or node.taken:
            return
        if node.rows is None or node.tracked != self._since or not _same(node.rows, by_channel):
            node.rows = None if by_channel else {}
            node.tracked = self._since
        node.final = had_child and node.rows is not None
        node.read = {c: tuple(ids) for c, ids in by_channel.items()} if had_child else None

    def _met(
        self,
        checkpoint_id: str,
        parent: str | None,
        stored: Iterable[str],
        versions: Mapping[str, Any],
    ) -> Node:
        """A node for a checkpoint that was first met in a read."""
        node = self._nodes[checkpoint_id] = Node(self._since)
        node.parent = parent
        present = set(stored)
        node.stored = {c: HELD if c in present else ABSENT for c in self._since}
        if checkpoint_id >= self._newest and self._by_version:
            for channel, how in node.stored.items():
                if channel in versions:
                    self._latest[channel] = (versions[channel], how)
        self._newest = max(self._newest, checkpoint_id)
        if parent is None:
            self._roots.add(checkpoint_id)
        else:
            self._child(parent, checkpoint_id, ours=False)
        return node

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

    # -- telling

    def depth(self, checkpoint_id: str) -> int | None:
        """Supersteps since the last snapshot, where the checkpoint's metadata was seen."""
        node = self._nodes.get(checkpoint_id)
        return None if node is None else node.depth

    def overdue(self, checkpoint_id: str) -> frozenset[str]:
        """Channels whose walk from here passes LangGraph's bound, as far as metadata was seen."""
        node = self._nodes.get(checkpoint_id)
        return _NONE if node is None else node.overdue

    def surely_seeded(self, checkpoint_id: str) -> bool:
        """Whether fewer supersteps passed since the last snapshot than since the thread began.

        LangGraph counts both from the checkpoint of step -1 on.
        """
        node = self._nodes.get(checkpoint_id)
        if node is None or node.depth is None or node.step is None:
            return False
        return node.depth <= node.step

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

    def _recorded(self, node: Node, channel: str) -> bool:
        """Whether the channel's writes were recorded without a gap since the node began."""
        since = node.tracked.get(channel)
        return since is not None and since == self._since.get(channel)

    def _own_task_ids(self, node: Node, channel: str) -> tuple[str, ...] | None:
        if channel in node.taken:
            return node.taken[channel]
        if not self._recorded(node, channel):
            return None
        if node.read is not None:
            return node.read.get(channel, ())
        own = self._own(node, channel)
        return None if own is None else tuple(row.task_id for row in own)

    def _own(self, node: Node, channel: str) -> list[Row] | None:
        """The channel's own writes in the order the saver replays them; None if not known."""
        if node.rows is None or channel in node.taken or not self._recorded(node, channel):
            return None
        rows = [row for row in node.rows.values() if row.channel == channel]
        if len(rows) < 2:  # noqa: PLR2004 - nothing to order
            return rows
        ordered = sorted(rows)  # path, task id, idx: the fields' own order
        if self._ordered:
            return ordered
        by_task = sorted(rows, key=lambda row: (row.task_id, row.idx))
        if self._by_task and all(map(_is_uuid, rows)):
            return by_task  # other ids a database may sort by a collation of its own
        return ordered if ordered == by_task == rows else None

    def _packed(self, channel: str, key: Any) -> Packed | None:
        """The value stored under `key`, if it is at hand."""
        known, packed = self._seeds.get(channel, (None, None))
        return packed if known == key else None

    def _let_go(self, channel: str) -> None:
        """Drop a channel's packed value: a newer one or a view takes its place."""
        _, packed = self._seeds.pop(channel, (None, None))
        if packed is not None:
            self._row_bytes -= len(packed.data)


def _is_uuid(row: Row) -> bool:
    return _UUID.fullmatch(row.task_id) is not None


def _same(rows: Mapping[tuple[str, int], Row], by_channel: Mapping[str, Sequence[str]]) -> bool:
    """Whether the recorded rows are those that were read, as far as task ids tell."""
    known: dict[str, list[str]] = {}
    for row in rows.values():
        known.setdefault(row.channel, []).append(row.task_id)
    return {c: sorted(ids) for c, ids in known.items()} == {
        c: sorted(ids) for c, ids in by_channel.items()
    }
