"""Delta histories composed from facts.

`Chain` is everything known about one (thread, namespace): the facts, and per way of
decoding a `View` of the histories built from them. `compose` answers with a `Position`, or
with the checkpoints whose rows must be read first; it never performs I/O itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Any, NamedTuple

from deerflow_saver.history.facts import ABSENT, HELD, ROW_BYTES, Facts, Node, Packed, Row
from deerflow_saver.history.isolation import Write
from deerflow_saver.history.segment import Position, Segment, View
from deerflow_saver.history.sharing import News, Sealed

__all__ = ["Chain", "Decoded", "Fetched", "Need"]


class Need(NamedTuple):
    """A checkpoint whose row must be read before a history can be composed."""

    checkpoint_id: str
    known: bool
    """Whether its parent is known, so that composing goes on beyond it."""


class Decoded(NamedTuple):
    """A seed read for us."""

    value: Any


class Fetched(NamedTuple):
    """A row read for composing: its parent, stored values and own writes, ours to keep."""

    parent: str | None
    values: Mapping[str, Any]
    own: Sequence[Write | Row]
    """Rows are decoded when the history they become part of is first read."""


_CHAIN_BYTES = 4200
_ANCHORS, _LAST = 8, 64


class Chain(Facts):
    """Everything known about one (thread, namespace)."""

    def __init__(self, since: Mapping[str, int], **options: Any) -> None:
        """Start empty; the arguments are those of `Facts`."""
        super().__init__(since, **options)
        self._views: dict[Any, View] = {}
        self.collects = False
        """Whether garbage is worth collecting before the next read; see `noticed`."""
        self._collected_in_vain = False
        self.lessons = 0
        """Grows with every history that is kept."""

    def noticed(self, *, held: bool) -> None:
        """The objects to be given again were held, or were not.

        A finished run leaves its state in a reference cycle, so the next reader collects the
        youngest generation first, before it takes the lock. Where that did not help, it is
        not tried again until the objects were free without it.
        """
        if not held:
            self._collected_in_vain = False
        elif self.collects:
            self.collects, self._collected_in_vain = False, True
        else:
            self.collects = not self._collected_in_vain

    def clear(self) -> None:
        """Forget everything, the histories too."""
        super().clear()
        self._views.clear()

    @property
    def size(self) -> int:
        """Bytes held, facts and histories."""
        return _CHAIN_BYTES + super().size + sum(view.size for view in self._views.values())

    def trim(self, limit: int) -> None:
        """Drop what was used longest ago until the chain holds at most `limit` bytes."""
        for view in self._views.values():
            while self.size > limit and view.drop_oldest():
                pass
        if self.size > limit:
            self.clear()

    def view(self, token: Any, make: Callable[[], View]) -> View:
        """The histories decoded in the way `token` names."""
        view = self._views.get(token)
        if view is None:
            view = self._views[token] = make()
        return view

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
        if child is None or node is None or node.stored.get(channel) is not ABSENT:
            return None
        longer = self._at_hand(view, child, channel)
        own = self._own_task_ids(node, channel)
        if longer is None or own is None:
            return None
        start = longer.length - len(own)
        if start < 0 or longer.segment.task_ids(start, longer.length) != own:
            return None
        return Position(longer.segment, start)

    def compose(
        self, view: View, checkpoint_id: str, channel: str, fetched: Mapping[str, Fetched]
    ) -> Position | list[Need]:
        """The history from what is known, or the checkpoints that must be read for it.

        `fetched` holds rows that were read for this purpose, values included.
        """
        path: dict[str, Sequence[Write | Row]] = {}
        needs: list[Need] = []
        current, seed = checkpoint_id, ABSENT
        position = self.find(view, current, channel)
        while position is None:
            parent, known = self._parent(current, fetched)
            if not known or parent in path:  # a loop: a put over an old id can make one
                return [*needs, Need(current, known=False)]
            # A sibling may have it, where this checkpoint itself is not known
            start = Position(view.segment(), 0) if parent is None else None
            position = start or view.after.get((parent or "", channel))
            if parent is None or position is not None:
                break
            own = self._own_writes(parent, channel, fetched)
            path[parent] = own or ()
            seed = self._seed(view, parent, channel, fetched)
            if seed is HELD or own is None:
                needs.append(Need(parent, known=self._parent(parent, fetched)[1]))
                if seed is HELD or not needs[-1].known:
                    return needs
            if seed is not ABSENT:
                break
            current = parent
            position = self._at_hand(view, current, channel)
        if needs:
            return needs
        if position is None:
            position = Position(self._start(view, channel, seed), 0)
        position = self._extended(view, position, channel, path, fetched)
        if checkpoint_id not in self._nodes:
            view.direct[checkpoint_id, channel] = position
            self._newest = max(self._newest, checkpoint_id)
        return position

    def _parent(
        self, checkpoint_id: str, fetched: Mapping[str, Fetched]
    ) -> tuple[str | None, bool]:
        if checkpoint_id in fetched:
            return fetched[checkpoint_id].parent, True
        node = self._nodes.get(checkpoint_id)
        return (None, False) if node is None else (node.parent, True)

    def _seed(
        self, view: View, checkpoint_id: str, channel: str, fetched: Mapping[str, Fetched]
    ) -> Any:
        """What the checkpoint stores: `ABSENT`, `HELD`, a value read for us, or a known key."""
        if checkpoint_id in fetched:
            values = fetched[checkpoint_id].values
            if values.get(channel) is None:  # savers differ in whether a stored None is a seed
                return HELD if channel in values else ABSENT
            return Decoded(values[channel])
        node = self._nodes.get(checkpoint_id)
        key = HELD if node is None else node.stored.get(channel, HELD)
        if type(key) is tuple and not (view.seed(channel, key) or self._packed(channel, key)):
            return HELD
        return key

    def _start(self, view: View, channel: str, seed: Any) -> Segment:
        """A segment that starts from a seed as `_seed` gave it."""
        if isinstance(seed, Decoded):
            return view.seeded(seed.value, given=False)
        known = view.seed(channel, seed)
        if known is None:
            known = view.keep_seed(channel, seed, self._packed(channel, seed) or Packed("", b""))
            self._let_go(channel)
        return Segment(view.serde, view.isolation, known)

    def _own_writes(
        self, checkpoint_id: str, channel: str, fetched: Mapping[str, Fetched]
    ) -> Sequence[Write | Row] | None:
        """The checkpoint's own writes, if all of them are known for good."""
        if checkpoint_id in fetched:
            return [
                write
                for write in fetched[checkpoint_id].own
                if (write.channel if type(write) is Row else write[1]) == channel
            ]
        node = self._nodes.get(checkpoint_id)
        return self._own(node, channel) if node is not None and node.final else None

    def _extended(
        self,
        view: View,
        position: Position,
        channel: str,
        path: dict[str, Sequence[Write | Row]],
        fetched: Mapping[str, Fetched],
    ) -> Position:
        """The position after the own writes of the checkpoints in `path`, newest first there."""
        for parent, own in reversed(path.items()):
            segment, start = position
            end = segment.ends.get(parent)
            if end is None:
                if segment.length != start:
                    segment = segment.fork(start)
                segment.extend(own)
                end = segment.ends[parent] = segment.length
                if parent not in fetched:
                    self._take(self._nodes[parent], channel, own)
            position = view.after[parent, channel] = Position(segment, end)
        if path:
            view.use(position.segment)
            self.lessons += 1
        return position

    def _take(self, node: Node, channel: str, own: Sequence[Any]) -> None:
        """The view keeps these rows from now on."""
        node.taken[channel] = tuple([row.task_id for row in own])
        for row in own:
            del node.rows[row.task_id, row.idx]  # type: ignore[union-attr]
            self._row_bytes -= ROW_BYTES + len(row.value.data)

    def anchors(self, view: View, channels: Sequence[str]) -> tuple[str, ...]:
        """Checkpoints whose children's histories came to hand last, for all `channels`."""
        after = view.after
        last = islice(reversed(after), _LAST * len(channels))
        newest = nlargest(_ANCHORS, (cid for cid, channel in last if channel == channels[0]))
        return tuple(cid for cid in newest if all((cid, channel) in after for channel in channels))

    def news(self, checkpoint_id: str, channels: Iterable[str]) -> News | None:
        """What a checkpoint that was just put makes shareable of these delta channels."""
        child = self._nodes.get(checkpoint_id)
        if child is None or not self.trusted:
            return None
        parent = None if child.parent is None else self._nodes.get(child.parent)
        sealed, seeds = [], []
        for channel in channels:
            key = child.stored.get(channel, HELD)
            packed = self._packed(channel, key)
            if packed is not None:
                seeds.append((channel, key, packed))
            own = self._own(parent, channel) if parent is not None and parent.final else None
            if parent is not None and own is not None:
                stored = parent.stored.get(channel, HELD)
                sealed.append(Sealed(child.parent or "", channel, parent.parent, stored, own))
        return News(checkpoint_id, child.parent, sealed, seeds)

    def prepare(self, checkpoint_id: str) -> None:
        """Compose what the next run will read, as far as that needs no row to be read."""
        for view in self._views.values():
            for channel in self._asked:
                found = self.compose(view, checkpoint_id, channel, {})
                if isinstance(found, Position):
                    found.segment.decode()
                    view.use(found.segment)

    def remember(self, view: View, checkpoint_id: str, channel: str, position: Position) -> None:
        """Keep a history that was read whole."""
        view.use(position.segment)
        self.lessons += 1
        node = self._nodes.get(checkpoint_id)
        if node is not None and node.parent is not None:
            view.after[node.parent, channel] = position
        else:
            view.direct[checkpoint_id, channel] = position
            self._newest = max(self._newest, checkpoint_id)
