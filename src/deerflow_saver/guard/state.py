"""What the guard remembers, all of it bounded: forgetting makes it ask, never refuse."""

from __future__ import annotations

import operator
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from deerflow_saver._recent import Recent
from deerflow_saver._tally import tally
from deerflow_saver.guard.fence import Head
from deerflow_saver.guard.locks import KeyedLocks
from deerflow_saver.guard.policy import signal_of
from deerflow_saver.guard.runs import RUNTIME, UNTOLD, Base, Refusal, Run, begin

__all__ = [
    "Flight",
    "GuardState",
    "Known",
    "Namespace",
    "NamespaceKey",
]

_NAMESPACES = 2048
_REFUSED = 4096
_RUNS = 512
_KNOWN_PER_NAMESPACE = 64
_MOVING = 4096
_FOLLOWING_SECONDS = 0.02


class NamespaceKey(tuple[Any, ...]):
    """Identity of a namespace: thread, namespace, and what else the saver may scope rows by."""

    __slots__ = ()


_caller: ContextVar[Run | None] = ContextVar("deerflow_guard_caller", default=None)


class Known:
    """Writes on one checkpoint that a run read or wrote: how many per (task, channel)."""

    __slots__ = ("_mutex", "complete", "rows", "versions")

    def __init__(self) -> None:
        """Know none."""
        self._mutex = threading.Lock()
        self.rows: Mapping[tuple[str, str], int] = {}
        """Replaced, never changed."""
        self.complete = False
        """Whether everything that was there before the run's own writes is counted."""
        self.versions: Mapping[str, Any] = {}
        """The checkpoint's channel versions as a caller outside runs read them."""

    def add_all(self, rows: Iterable[tuple[str, str]]) -> None:
        """Count what was there."""
        self._change(tally(rows), max)
        self.complete = True

    def add(self, rows: Iterable[tuple[str, str]]) -> None:
        """Count what the run writes."""
        self._change(tally(rows), operator.add)

    def _change(
        self, counted: Mapping[tuple[str, str], int], merge: Callable[[int, int], int]
    ) -> None:
        if not counted:
            return
        while True:
            known = self.rows
            rows = {**known, **counted}  # outside the lock, as in `Recent.obtain`
            if known:
                rows.update({row: merge(known.get(row, 0), n) for row, n in counted.items()})
            with self._mutex:
                if self.rows is known:
                    self.rows = rows
                    return


class Flight:
    """A save under way."""

    __slots__ = ("loop", "waiters")

    def __init__(self, loop: Any) -> None:
        """Take off on `loop`; None for a thread."""
        self.loop = loop
        self.waiters: list[Any] = []
        """`(loop, future)` of tasks that wait for it."""


class Namespace:
    """What is remembered about one (thread, namespace)."""

    __slots__ = (
        "_bases", "_refused_to", "channels", "children", "full_head", "head", "known", "marked",
        "vague", "written",
    )  # fmt: skip

    def __init__(self) -> None:
        """Know nothing."""
        self.channels: frozenset[str] | None = None
        """Delta channels at the head as last seen here; None before anything was seen."""
        self.written: frozenset[str] = frozenset()
        """Channels that ever were delta, whose late writes still count."""
        self.vague = False
        """Delta, but the names are not known."""
        self.marked = False
        """Whether it was ever stamped: then its checkpoints say themselves what they are."""
        self.head: Head | None = None
        """The newest checkpoint as last seen here."""
        self.full_head: str | None = None
        """A head that was found to be full by all that it tells."""
        self.children: Recent[str | None, Run | None] = Recent(_KNOWN_PER_NAMESPACE)
        """Which run put a checkpoint's child."""
        self.known: Recent[tuple[Run | None, str], Known] = Recent(_KNOWN_PER_NAMESPACE)
        """Per run and checkpoint, the writes the run may find there; None stands for whoever
        writes without having read, and may find others' writes, too."""
        self._refused_to: Recent[Run, Refusal] = Recent(_KNOWN_PER_NAMESPACE)
        self._bases: Recent[Run, Base] = Recent(_KNOWN_PER_NAMESPACE)
        """Of runs of LangGraph."""

    def expect(self, names: frozenset[str]) -> None:
        """A put begins that shows these delta channels: their writes may overtake it."""
        if not names <= self.written:
            self.written |= names

    def saw(self, names: Iterable[str], *, vague: bool) -> None:
        """The newest checkpoint has these delta channels."""
        channels = frozenset(names)
        if channels != self.channels:
            self.channels = channels
        if not self.written >= channels:
            self.written |= channels
        self.vague = vague and not self.channels

    def learn(self, row: Any, *, latest: bool) -> None:
        """A row that was read shows delta channels, or, if it is the latest, that there are none.

        A read may be overtaken by a put, so it only adds to what is known.
        """
        signal = signal_of(row.metadata, row.checkpoint.get("channel_values"))
        self.marked = self.marked or signal.marked
        if latest:
            parent = (row.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            self.head = Head(row.checkpoint["id"], parent, signal, "head", "head")
        if self.channels is None:
            if latest or signal.delta:
                self.saw(signal.channels, vague=signal.vague)
        elif signal.channels and not signal.channels <= self.channels and latest:
            self.saw(self.channels | signal.channels, vague=False)
        elif not signal.channels <= self.written:
            self.written |= signal.channels

    def read_head(self, row: Any) -> None:
        """The newest row was read; None: there is none."""
        if row is None:
            self.head = None
        else:
            self.learn(row, latest=True)

    def refuse_to(self, run: Run | None, refusal: Refusal) -> None:
        """Refuse whatever else a run writes that ends by a refusal.

        It may still be saving: writes on checkpoints it never got to put.
        """
        if run is not None and run.ends:
            self._refused_to.keep(run, refusal)

    def refused_to(self, run: Run | None) -> Refusal | None:
        """Why nothing more of the run is accepted."""
        return None if run is None else self._refused_to.get(run)

    def loaded(self, run: Run, checkpoint_id: str | None, *, named: bool) -> None:
        """A run read: it goes on from what it reads first, `PregelLoop.__enter__`'s read.

        A read of another checkpoint by its name is none of LangGraph's: its node's, which may
        as well put by hand.
        """
        if not run.ends:
            return
        base = self._bases.get(run)
        if base is None:
            self._bases.keep(run, Base(checkpoint_id, own=False))
        elif named and base.checkpoint_id != checkpoint_id:
            self.strays(run)

    def goes_on(self, run: Run | None, checkpoint_id: str) -> None:
        """A run puts a checkpoint, and will put its next one upon it."""
        if run is not None and run.ends:
            self._bases.keep(run, Base(checkpoint_id, own=True))

    def strays(self, run: Run | None) -> None:
        """What a run will put its next checkpoint upon cannot be told any more."""
        if run is not None and run.ends:
            self._bases.keep(run, UNTOLD)

    def base_of(self, run: Run | None) -> Base | None:
        """The checkpoint that a run puts its next one upon, if that can be told."""
        base = None if run is None else self._bases.get(run)
        return None if base is UNTOLD else base

    def leaves_line(self, run: Run) -> Refusal | None:
        """Why the first put of `run` will be refused, as far as is known without a look."""
        head, base = self.head, self._bases.get(run)  # in this order: a put changes base first
        if head is None or base is None or base.own or not head.signal.delta:
            return None
        if base.checkpoint_id is None:
            return Refusal("second root", head.signal.channels, head.checkpoint_id)
        if base.checkpoint_id >= head.checkpoint_id:
            return None
        return Refusal("fork", head.signal.channels, head.checkpoint_id)

    def is_child_of(self, run: Run | None, parent: str | None) -> bool:
        """Whether `run` put the checkpoint's child."""
        return parent in self.children and self.children.get(parent) is run

    def known_to(self, run: Run | None, checkpoint_id: str) -> Known:
        """What the run knows about a checkpoint's writes."""
        return self.known.obtain((run, checkpoint_id), Known)


class GuardState:
    """Shared by a wrapper and its clones."""

    def __init__(self, locks: KeyedLocks) -> None:
        """Start empty, with the locks of the database's wrappers in this process."""
        self.locks = locks
        # A lock that may be taken again: collecting garbage may close a plan that lands here
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._namespaces: Recent[NamespaceKey, Namespace] = Recent(_NAMESPACES)
        self._refused: Recent[tuple[str, str], Refusal] = Recent(_REFUSED)
        self._runs: Recent[int, tuple[Any, Run]] = Recent(_RUNS)
        self._flights: dict[Hashable, set[Flight]] = {}
        self._waiting = 0
        """Threads that wait for flights to land."""
        self._moving: OrderedDict[Hashable, tuple[float, int, int]] = OrderedDict()
        """When a save last landed or a run last read, on which loop, and how many saves landed
        since the namespace was settled: more may follow."""

    # -- namespaces ----------------------------------------------------------------------

    def namespace(self, place: NamespaceKey) -> Namespace:
        """What is remembered of a namespace."""
        return self._namespaces.obtain(place, Namespace)

    def forget_thread(self, thread_id: str) -> None:
        """The thread's rows were deleted or rewritten."""
        for place in [place for place, _ in self._namespaces.items() if place[0] == thread_id]:
            self._namespaces.discard(place)

    def forget_all(self) -> None:
        """Rows of any thread were deleted."""
        self._namespaces.clear()

    # -- refused checkpoints -------------------------------------------------------------

    def refuse(self, thread_id: str, checkpoint_id: str, refusal: Refusal) -> None:
        """Whatever builds on this checkpoint is refused as well."""
        self._refused.keep((thread_id, checkpoint_id), refusal)

    def accept(self, thread_id: str, checkpoint_id: str) -> None:
        """The checkpoint was stored after all."""
        if self._refused:
            self._refused.discard((thread_id, checkpoint_id))

    @property
    def refuses(self) -> bool:
        """Whether any checkpoint was refused."""
        return len(self._refused) > 0

    def refused(self, thread_id: str, ids: Iterable[Any]) -> Refusal | None:
        """Why one of these checkpoints was refused."""
        found = (self._refused.get((thread_id, checkpoint_id)) for checkpoint_id in ids)
        return next((refusal for refusal in found if refusal is not None), None)

    # -- runs ------------------------------------------------------------------------------

    def run_of(self, names: Mapping[str, Any]) -> Run | None:
        """Who makes this call: LangGraph's run, else whoever read last in this context."""
        runtime = names.get(RUNTIME)
        if runtime is None:
            return _caller.get()
        # The object is kept, so that its id stays its own
        return self._runs.obtain(id(runtime), lambda: (runtime, Run(names)))[1]

    def reader(
        self, names: Mapping[str, Any], key: tuple[str, str], namespace: Namespace
    ) -> tuple[Run, bool]:
        """Who makes this read, and whether what it read before is superseded.

        A run loads its checkpoint once. A caller outside a run starts over with each read;
        tasks and threads it starts with its context write on its behalf.
        """
        if names.get(RUNTIME) is not None:
            begins = id(names[RUNTIME]) not in self._runs
            run = self.run_of(names) or Run()
            if begins:
                begin(run, key, namespace)
            return run, False
        run = Run()
        _caller.set(run)
        return run, True

    # -- saves under way -------------------------------------------------------------------

    def take_off(self, key: Hashable, loop: Any) -> Flight:
        """A save begins."""
        flight, alone = Flight(loop), set[Flight]()
        with self._mutex:
            self._flights.setdefault(key, alone).add(flight)
        return flight

    def land(self, key: Hashable, flight: Flight) -> None:
        """A save ended, one way or the other."""
        with self._mutex:
            others = self._flights[key]
            others.discard(flight)
            if not others:
                del self._flights[key]
            if self._waiting:
                self._changed.notify_all()
            self.moves(key, flight.loop, landed=1)
        for loop, future in flight.waiters:
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:  # the waiter's loop is closed
                continue

    def moves(self, key: Hashable, loop: Any, *, landed: int = 0) -> None:
        """So many saves landed, or a run read what it goes on from: more may follow there."""
        with self._mutex:
            before = self._moving.pop(key, None)
            landings = landed if before is None else landed + before[2]
            self._moving[key] = time.monotonic(), id(loop), landings
            if len(self._moving) > _MOVING:
                self._moving.popitem(last=False)

    def unsettled(self, key: Hashable, loop: Any) -> bool:
        """Whether saves are under way or may follow.

        Those of a cancelled task of `loop` do, however long that takes by the clock, until it
        has turned often enough for them to begin. Of another thread nothing is known but time.
        """
        if key in self._flights:
            return True
        moved = self._moving.get(key)
        if moved is None:
            return False
        when, home, _ = moved
        mine = loop is not None and home == id(loop)
        return mine or time.monotonic() - when < _FOLLOWING_SECONDS

    def landings(self, key: Hashable) -> int:
        """How many saves have landed since the namespace was last settled."""
        moved = self._moving.get(key)
        return 0 if moved is None else moved[2]

    def settled(self, key: Hashable, landings: int) -> bool:
        """Whether none is under way and none landed but those `landings`; then it is settled."""
        with self._mutex:
            if key in self._flights or self.landings(key) > landings:
                return False
            self._moving.pop(key, None)
        return True

    def wait(self, key: Hashable, loop: Any, seconds: float) -> None:
        """Block until the saves under way have ended; those of the thread's own `loop` cannot."""

        def landed() -> bool:
            flights = self._flights.get(key, ())
            return all(loop is not None and flight.loop is loop for flight in flights)

        with self._mutex:
            self._waiting += 1
            try:
                self._changed.wait_for(landed, timeout=seconds)
            finally:
                self._waiting -= 1

    def awaited(self, key: Hashable, loop: Any) -> list[Any]:
        """Futures of the saves under way now, for a task to wait for."""
        futures = []
        with self._mutex:
            for flight in self._flights.get(key, ()):
                future = loop.create_future()
                flight.waiters.append((loop, future))
                futures.append(future)
        return futures


def _resolve(future: Any) -> None:
    if not future.done():
        future.set_result(None)
