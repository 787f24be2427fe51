"""The fence: makes the guard's look at a namespace and the write that follows one step.

A guarded call opens a `Session`: under the lock of its (thread, namespace) in this process
it looks at what is stored, and if the rule accepts it stores through the same session.
`ProcessFence` does that for any saver, against the writers of this process. The fences of
`fence_sqlite` and `fence_postgres` put look and write into one transaction of the saver's
own connection, against every guarded writer of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from deerflow_saver._taping import run, taped_as
from deerflow_saver.guard.locks import KeyedLocks
from deerflow_saver.guard.policy import Signal, signal_of
from deerflow_saver.guard.rule import Place

__all__ = [
    "NOTHING", "Call", "Fence", "FenceKind", "Forecast", "Head", "Look", "MemoryFence", "Plain",
    "ProcessFence", "Row",
    "Seen", "Session", "place_of", "selected_head",
]  # fmt: skip

FenceKind = Literal["process", "transaction"]
Call = tuple[Any, ...]
"""A call of a saver, as `_taping.run` takes it."""


class Row(NamedTuple):
    """A stored write, its value only where it was asked for."""

    task_id: str
    idx: int
    channel: str
    value: Any = None
    """Serialised (`tuple`) from a database, `Plain` from a saver, None if not asked for."""


class Plain(NamedTuple):
    """A stored value as the saver gives it to readers."""

    value: Any


class Head(NamedTuple):
    """The newest stored checkpoint, and where others stand to it in the database's order."""

    checkpoint_id: str
    parent_id: str | None
    signal: Signal
    parent_place: Place
    """Where the addressed checkpoint stands."""
    child_place: Place


class Look(NamedTuple):
    """What a guarded call wants to know."""

    config: Any
    """The call's own config."""
    thread_id: Any
    checkpoint_ns: str
    parent: str | None
    """The addressed checkpoint."""
    child: str | None = None
    """The checkpoint being put."""
    rows: bool = False
    """Whether the writes stored on the addressed checkpoint are wanted."""
    task_id: str | None = None
    """The task whose stored values are wanted."""
    known: Head | None = None
    """The head as last seen: while it is the head, its id stands for its parent and metadata."""


class Seen(NamedTuple):
    """What is stored."""

    head: Head | None = None
    rows: Sequence[Row] = ()
    """Writes on the addressed checkpoint, if it is the head and they were asked for."""
    expected: bool = False
    """Whether these are just the writes that the run knows of."""


NOTHING = Seen()


class Forecast(NamedTuple):
    """What a look will show unless somebody else writes, and what was decided by it."""

    look: Look
    foreseen: Seen
    """With a head; its id stands for its parent and metadata too."""
    rows: Sequence[tuple[str, str]] | None
    """`(task id, channel)` of the writes there may be; None: any, but of the look's own task."""
    decide: Callable[[Seen], Call]
    """The call to make after a look; raises the refusal."""


@dataclass(slots=True)
class Session:
    """One guarded call in progress; a fence keeps its own things in it."""

    key: Any
    locked: bool
    """Whether the process lock of `key` is held."""
    stack: Any = None
    """Exit stack of whatever the fence opened."""
    saver: Any = None
    """The copy of the saver that writes inside the fence."""
    mine: bool = False
    """Whether the fence began the transaction it writes in."""
    transaction: Any = None
    """The transaction while it is neither committed nor rolled back."""
    locks: KeyedLocks = field(default_factory=KeyedLocks)

    def unlock(self) -> None:
        """Give the process lock back, once."""
        if self.locked:
            self.locked = False
            self.locks.release(self.key)


class Fence(Protocol):
    """How look and write become one step.

    Obligations: `look` sees everything that was committed before it, and until the session
    ends nothing else that passes a fence of the same kind is stored in the namespace;
    `store` returns only when the write is as durable as the saver's own; `close` undoes
    what `store` did not finish, may be called at any time, and never raises.
    """

    kind: FenceKind
    foresees: bool
    """Whether `attempt` may be asked."""

    def look(self, asked: tuple[Session, Look]) -> Seen:
        """Open the session and look."""
        ...

    async def alook(self, asked: tuple[Session, Look]) -> Seen:
        """`look` on the async face."""
        ...

    def store(self, asked: tuple[Session, Call]) -> Any:
        """Make the call inside the session."""
        ...

    async def astore(self, asked: tuple[Session, Call]) -> Any:
        """`store` on the async face."""
        ...

    def attempt(self, asked: tuple[Session, Call, Forecast]) -> Any:
        """Make the call if all of the forecast holds, else look, decide and store."""
        ...

    async def aattempt(self, asked: tuple[Session, Call, Forecast]) -> Any:
        """`attempt` on the async face."""
        ...

    def close(self, session: Session) -> None:
        """End the session."""
        ...

    async def aclose(self, session: Session) -> None:
        """`close` on the async face."""
        ...


def place_of(checkpoint_id: str | None, head: str) -> Place:
    """Where an id stands in the order of strings."""
    if checkpoint_id == head:
        return "head"
    return "newer" if checkpoint_id is not None and checkpoint_id > head else "older"


def selected_head(
    look: Look, newest: str, parent: str | None, metadata: Callable[[], Any], newer: Any
) -> Head:
    """The head a database selected; `newer` is what it says of the parent and of the child.

    `metadata` is called where the head is not the one that is known.

    The database's collation decides what is newer, not the order of strings here.
    """
    places: list[Place] = [
        "head" if checkpoint_id == newest else "newer" if is_newer else "older"
        for checkpoint_id, is_newer in ((look.parent, newer[0]), (look.child, newer[1]))
    ]
    known = look.known
    if known is not None and known.checkpoint_id == newest:
        return Head(newest, known.parent_id, known.signal, *places)
    return Head(newest, parent, signal_of(metadata()), *places)


class ProcessFence:
    """For any saver: the lock of the process, and the head as the saver itself gives it."""

    kind: FenceKind = "process"
    foresees = False

    def __init__(self, saver: Any) -> None:
        """Use `saver` for reading and writing."""
        self.saver = saver

    def look(self, asked: tuple[Session, Look]) -> Seen:
        """Read the newest row."""
        return _seen(asked[1], self.saver.get_tuple(_newest(asked[1].config)))

    async def alook(self, asked: tuple[Session, Look]) -> Seen:
        """Read the newest row."""
        return _seen(asked[1], await self.saver.aget_tuple(_newest(asked[1].config)))

    def store(self, asked: tuple[Session, Call]) -> Any:
        """Call the saver."""
        return run(self.saver, asked[1])

    async def astore(self, asked: tuple[Session, Call]) -> Any:
        """Call the saver."""
        return await run(self.saver, asked[1])

    def attempt(self, asked: tuple[Session, Call, Forecast]) -> Any:
        """Look, decide and store."""
        session, call, forecast = asked
        decided = forecast.decide(self.look((session, forecast.look)))
        return self.store((session, taped_as(call, decided)))

    async def aattempt(self, asked: tuple[Session, Call, Forecast]) -> Any:
        """Look, decide and store."""
        session, call, forecast = asked
        decided = forecast.decide(await self.alook((session, forecast.look)))
        return await self.astore((session, taped_as(call, decided)))

    def close(self, session: Session) -> None:
        """Nothing was opened."""

    async def aclose(self, session: Session) -> None:
        """Nothing was opened."""


def _newest(config: Any) -> Any:
    names = {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
    return {**config, "configurable": names}


def _seen(look: Look, row: Any) -> Seen:
    if row is None:
        return NOTHING
    newest = row.checkpoint["id"]
    parent = (row.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    signal = signal_of(row.metadata, row.checkpoint.get("channel_values"))
    places = place_of(look.parent, newest), place_of(look.child, newest)
    rows: list[Row] = []
    if look.rows and places[0] == "head":
        counted: dict[str, int] = {}
        for task_id, channel, value in row.pending_writes or ():
            idx = -1 if channel in _SPECIAL else counted.get(task_id, 0)
            counted[task_id] = max(idx + 1, counted.get(task_id, 0))
            rows.append(Row(task_id, idx, channel, Plain(value)))
    return Seen(Head(newest, parent, signal, *places), rows)


_SPECIAL = frozenset({"__error__", "__scheduled__", "__interrupt__", "__resume__"})


class MemoryFence(ProcessFence):
    """For `InMemorySaver`: its dictionaries, without decoding a row."""

    def __init__(self, saver: Any) -> None:
        """Use `saver` for reading and writing."""
        super().__init__(saver)
        self._newest: dict[tuple[Any, str], tuple[str, int, str, Any, Head]] = {}

    def look(self, asked: tuple[Session, Look]) -> Seen:
        """Look into the dictionaries."""
        _, look = asked
        rows: dict[str, Any] | None = None
        by_namespace = self.saver.storage.get(look.thread_id)
        if by_namespace is not None:
            rows = by_namespace.get(look.checkpoint_ns)
        if not rows:
            return NOTHING
        newest = self._head_of((look.thread_id, look.checkpoint_ns), rows)
        head = Head(
            newest.checkpoint_id,
            newest.parent_id,
            newest.signal,
            place_of(look.parent, newest.checkpoint_id),
            place_of(look.child, newest.checkpoint_id),
        )
        stored: list[Row] = []
        if look.rows and head.parent_place == "head":
            own = self.saver.writes.get((look.thread_id, look.checkpoint_ns, look.parent)) or {}
            stored = [
                Row(task_id, idx, channel, value)
                for (task_id, idx), (_, channel, value, *_) in list(own.items())
            ]
        return Seen(head, stored)

    def _head_of(self, key: tuple[Any, str], rows: dict[str, Any]) -> Head:
        """The newest row; remembered while the same row came last and no row came or went."""
        last, count = next(reversed(rows)), len(rows)
        known = self._newest.get(key)
        if known is not None:
            head = known[4]
            same = known[:2] == (last, count) and rows.get(head.checkpoint_id) is known[3]
            if same:
                return head
        newest = max(rows)
        row = rows[newest]
        signal = signal_of(self.saver.serde.loads_typed(row[1]))
        head = Head(newest, row[2], signal, "head", "head")
        if len(self._newest) > _REMEMBERED:
            self._newest.clear()
        self._newest[key] = (last, count, newest, row, head)
        return head

    async def alook(self, asked: tuple[Session, Look]) -> Seen:
        """Look into the dictionaries."""
        return self.look(asked)


_REMEMBERED = 4096
