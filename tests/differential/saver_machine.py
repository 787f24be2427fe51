"""Random histories of calls to the saver interface itself, legal ones and odd ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS, _DeltaSnapshot

from differential.machines import BUDGETS, ISOLATIONS, Machine
from differential.values import Spec, build, specs

__all__ = ["SaverHistories"]

DELTA = ("log", "facts", "slow")
PLAIN = ("plain", "other")
UNKNOWN = "never-heard-of"
_SPECIAL = (ERROR, INTERRUPT, RESUME, TASKS)
_PATHS = ("", "~__pregel_pull, a", "~__pregel_pull, b", "~__pregel_push, 0000000001")
_TASKS = ("task-1", "task-2", "task-3")

Batch = list[tuple[str, Spec]]

numbers = st.integers(0, 11)
places = st.sampled_from((0, 0, 0, 0, 0, 1, 2))
tasks = st.sampled_from(_TASKS)
paths = st.sampled_from(_PATHS)
channel_names = st.one_of(
    st.sampled_from(DELTA), st.sampled_from(DELTA), st.sampled_from((*PLAIN, *_SPECIAL))
)
batches = st.lists(st.tuples(channel_names, specs), max_size=3)
stored = st.sampled_from(("nothing", "nothing", "untouched", "snapshot", "legacy", "unversioned"))
storings = st.fixed_dictionaries(dict.fromkeys(DELTA, stored))
subsets = st.lists(st.sampled_from((*DELTA, "plain", UNKNOWN)), unique=True, min_size=1)


@dataclass
class Line:
    """One thread and namespace as the script knows it."""

    thread: str
    ns: str
    ids: list[str] = field(default_factory=list)
    reserved: list[str] = field(default_factory=list)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    parents: dict[str, set[str]] = field(default_factory=dict)
    """All that were ever given: a saver may keep the first one or the last."""

    def above(self, checkpoint_id: str, parent: str | None) -> str | None:
        """`parent`, unless that could make a loop, in which some raw savers never end."""
        if parent is None:
            return None
        reached, found = {parent}, [parent]
        while found:
            further = self.parents.get(found.pop(), set()) - reached
            reached |= further
            found += further
        if checkpoint_id in reached:
            return None
        self.parents.setdefault(checkpoint_id, set()).add(parent)
        return parent

    def config(self, checkpoint_id: str | None) -> dict[str, Any]:
        """Address a checkpoint, or with None the newest."""
        configurable = {"thread_id": self.thread, "checkpoint_ns": self.ns}
        if checkpoint_id is not None:
            configurable["checkpoint_id"] = checkpoint_id
        return {"configurable": configurable}


class SaverHistories(Machine):
    """Calls the saver interface in any order; every answer is compared with the raw saver's."""

    channels = (*DELTA, "plain", UNKNOWN)

    @initialize(
        ids=st.sampled_from(("uuid6", "uuid6", "uuid6", "before", "small")),
        budget=st.sampled_from(BUDGETS),
        isolation=st.sampled_from(ISOLATIONS),
        eager=st.booleans(),
        counted=st.booleans(),
    )
    def begin(self, ids: str, budget: int, isolation: str, *, eager: bool, counted: bool) -> None:
        thread, second = f"thread-{uuid4().hex}", f"thread-{uuid4().hex}"
        self.lines = [Line(thread, ""), Line(thread, "child:1"), Line(second, "")]
        self.counted = counted
        self._mint = self._minter(ids)
        self.start(budget, isolation, eager=eager)

    def _minter(self, kind: str) -> Callable[[], str]:
        if kind == "uuid6":
            return lambda: str(uuid6())
        if kind == "small":
            numbering = count(1)
            return lambda: str(next(numbering))
        made = iter([str(uuid6()) for _ in range(400)])  # older than any wrapper
        return lambda: next(made)

    # -- writing ---------------------------------------------------------------------------

    def _put(
        self,
        line: Line,
        checkpoint_id: str,
        parent: str | None,
        storing: dict[str, str],
        spec: Spec,
        number: int,
    ) -> None:
        parent = line.above(checkpoint_id, parent)
        versions = dict(line.versions.get(parent or "", {}))
        values: dict[str, Any] = {"plain": build(spec)}
        changed: dict[str, Any] = {}
        for name in (*DELTA, "plain"):
            how = storing.get(name, "nothing")
            if how != "untouched":
                new = self.host.inner.get_next_version(versions.get(name), None)
                if how != "unversioned":
                    versions[name] = changed[name] = new
            if how == "snapshot":
                values[name] = _DeltaSnapshot(build(spec))
            elif how in {"legacy", "unversioned"}:
                values[name] = build(spec)
        checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": dict(versions),
            "versions_seen": {},
            "updated_channels": None,
        }
        metadata: dict[str, Any] = {"source": "loop", "step": len(line.ids), "parents": {}}
        if self.counted:
            # The number is a hint only: a wrong one may cost time, never an answer
            depth = len(line.ids) * (number % 3) * 10
            metadata["counters_since_delta_snapshot"] = {n: [depth, depth] for n in DELTA}
        config = line.config(parent)
        self.host.call(
            self.face(number), self.pick(number), "put", config, checkpoint, metadata, changed
        )
        for passed in (config, checkpoint, metadata, changed):
            self.spoil(passed)
        line.versions[checkpoint_id] = versions
        if checkpoint_id not in line.ids:
            line.ids.append(checkpoint_id)

    def _write(self, line: Line, target: str, batch: Batch, task: str, path: str, n: int) -> None:
        config = line.config(target)
        writes = [(channel, build(spec)) for channel, spec in batch]
        self.host.call(self.face(n), self.pick(n), "put_writes", config, writes, task, path)
        self.spoil(config)
        for _, value in writes:
            self.spoil(value)
        writes.clear()

    @rule(
        place=places,
        steps=st.integers(1, 4),
        batch=batches,
        more=batches,
        path=paths,
        storing=storings,
        spec=specs,
        number=numbers,
    )
    def supersteps(
        self,
        place: int,
        steps: int,
        batch: Batch,
        more: Batch,
        path: str,
        storing: dict[str, str],
        spec: Spec,
        number: int,
    ) -> None:
        """What LangGraph does: writes on the head, then its child."""
        line = self.lines[place]
        for step in range(steps):
            head = max(line.ids, default=None)
            if head is not None:
                self._write(line, head, batch, f"task-b-{step}", path, number)
                self._write(line, head, more, f"task-a-{step}", _PATHS[step], number)
            self._put(line, self._mint(), head, storing if step == 0 else {}, spec, number)

    @rule(place=places, parent=numbers, storing=storings, spec=specs, number=numbers)
    def put_somewhere(
        self, place: int, parent: int, storing: dict[str, str], spec: Spec, number: int
    ) -> None:
        """A fork, a second root, or a child of a checkpoint that is not stored."""
        line = self.lines[place]
        choices = [*line.ids[::-1], None, *line.reserved[:1]]
        self._put(line, self._mint(), choices[parent % len(choices)], storing, spec, number)

    @rule(place=places, which=numbers, parent=numbers, storing=storings, spec=specs, number=numbers)
    def put_again(
        self,
        place: int,
        which: int,
        parent: int,
        storing: dict[str, str],
        spec: Spec,
        number: int,
    ) -> None:
        """An id that is stored already, perhaps under another parent."""
        line = self.lines[place]
        if line.ids:
            target = line.ids[-1 - which % len(line.ids)]
            choices = [*line.ids, None]
            self._put(line, target, choices[-1 - parent % len(choices)], storing, spec, number)

    @rule(place=places, batch=batches, task=tasks, path=paths, number=numbers)
    def write_before_its_checkpoint(
        self, place: int, batch: Batch, task: str, path: str, number: int
    ) -> None:
        """As with async durability, where a write may overtake its checkpoint's put."""
        line = self.lines[place]
        if not line.reserved:
            line.reserved.append(self._mint())
        self._write(line, line.reserved[0], batch, task, path, number)

    @rule(place=places, parent=numbers, storing=storings, spec=specs, number=numbers)
    def put_reserved(
        self, place: int, parent: int, storing: dict[str, str], spec: Spec, number: int
    ) -> None:
        """The checkpoint whose writes came first, by now perhaps not the newest."""
        line = self.lines[place]
        if line.reserved:
            choices = [*line.ids[::-1], None]
            target = line.reserved.pop()
            self._put(line, target, choices[parent % len(choices)], storing, spec, number)

    @rule(place=places, aim=numbers, batch=batches, task=tasks, path=paths, number=numbers)
    def write_somewhere(
        self, place: int, aim: int, batch: Batch, task: str, path: str, number: int
    ) -> None:
        """On the head, or too late: on a checkpoint with children. Task ids repeat."""
        line = self.lines[place]
        if line.ids:
            self._write(line, line.ids[-1 - aim % len(line.ids)], batch, task, path, number)

    @rule(second=st.booleans(), number=numbers)
    def delete_thread(self, number: int, *, second: bool) -> None:
        thread = self.lines[-1 if second else 0].thread
        self.host.call(self.face(number), self.pick(number), "delete_thread", thread)
        self.lines = [
            Line(line.thread, line.ns) if line.thread == thread else line for line in self.lines
        ]

    @precondition(lambda self: self._can("prune"))
    @rule(number=numbers, strategy=st.sampled_from(("keep_latest", "delete")))
    def prune(self, number: int, strategy: str) -> None:
        """As far as the saver can; the script goes on with ids that may be gone."""
        thread = self.lines[0].thread
        face, saver = self.face(number), self.pick(number)
        with suppress(NotImplementedError):  # a refusal, for threads with snapshots
            self.host.call(face, saver, "prune", [thread], strategy=strategy)

    @precondition(lambda self: self._can("copy_thread"))
    @rule(number=numbers)
    def copy_thread(self, number: int) -> None:
        source, target = self.lines[0], Line(f"thread-{uuid4().hex}", "")
        name = "copy_thread"
        self.host.call(self.face(number), self.pick(number), name, source.thread, target.thread)
        target.ids, target.versions = list(source.ids), dict(source.versions)
        target.parents = {cid: set(parents) for cid, parents in source.parents.items()}
        self.lines[-1] = target

    def _can(self, method: str) -> bool:
        names = (method, f"a{method}")
        cls = type(self.host.inner)
        return any(getattr(cls, n) is not getattr(BaseCheckpointSaver, n) for n in names)

    @rule(number=numbers)
    def copy_by_hand(self, number: int) -> None:
        """What an application does where the saver has no copy: same ids, another thread."""
        source, target = self.lines[0], Line(f"thread-{uuid4().hex}", "")
        face, saver = self.face(number), self.pick(number)
        rows = self.host.collect(face, saver, "list", source.config(None))
        for row in reversed(rows):
            parent = (row.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            config = target.config(parent)
            versions = row.checkpoint["channel_versions"]
            self.host.call(face, saver, "put", config, row.checkpoint, row.metadata, versions)
            cid = row.checkpoint["id"]
            target.ids.append(cid)
            target.parents[cid] = {parent} if parent else set()
            target.versions[cid] = dict(versions)
            for index, (task, channel, value) in enumerate(row.pending_writes or ()):
                where = target.config(cid)
                writes = [(channel, value)]
                self.host.call(face, saver, "put_writes", where, writes, f"{task}-{index}")
            self.spoil(row)
        self.lines[-1] = target

    # -- the wrapper's own life ------------------------------------------------------------

    @rule(kind=st.sampled_from(("copy", "allowlist", "shared")))
    def another_wrapper(self, kind: str) -> None:
        self.add_wrapper(kind)

    @rule()
    def cold_restart(self) -> None:
        self.restart_wrapper()

    @rule()
    def change_what_was_kept(self) -> None:
        self.spoil_held()

    # -- reading ---------------------------------------------------------------------------

    def _targets(self, line: Line) -> Sequence[str | None]:
        return [*line.ids[::-1], None, "no-such-checkpoint", *line.reserved]

    @rule(place=places, aim=numbers, channels=subsets, number=numbers, spoiled=st.booleans())
    def read_history(
        self, place: int, aim: int, channels: list[str], number: int, *, spoiled: bool
    ) -> None:
        line = self.lines[place]
        targets = self._targets(line)
        config = line.config(targets[aim % len(targets)])
        self.same_history(self.pick(number), self.face(number), config, channels, spoiled=spoiled)

    @rule(place=places, aim=numbers, number=numbers, spoiled=st.booleans())
    def read_row(self, place: int, aim: int, number: int, *, spoiled: bool) -> None:
        line = self.lines[place]
        targets = self._targets(line)
        config = line.config(targets[aim % len(targets)])
        self.same_row(self.pick(number), self.face(number), config, spoiled=spoiled)

    @rule(
        place=places,
        limit=st.none() | st.integers(1, 4),
        before=st.none() | numbers,
        number=numbers,
        whole_thread=st.booleans(),
    )
    def read_rows(
        self,
        place: int,
        limit: int | None,
        before: int | None,
        number: int,
        *,
        whole_thread: bool,
    ) -> None:
        line = self.lines[place]
        config = line.config(None)
        if whole_thread:
            del config["configurable"]["checkpoint_ns"]
        options: dict[str, Any] = {"limit": limit}
        if before is not None and line.ids:
            options["before"] = line.config(line.ids[-1 - before % len(line.ids)])
        self.same_rows(self.pick(number), self.face(number), config, **copy.deepcopy(options))

    @rule(order=st.sampled_from(("newest first", "oldest first")))
    def read_everything(self, order: str) -> None:
        self.same_everywhere({line.thread for line in self.lines}, order=order)

    @invariant()
    def wrapped_equals_raw(self) -> None:
        if self.eager:
            self.same_everywhere(sorted({line.thread for line in self.lines}))

    def teardown(self) -> None:
        if self.wrappers:
            self.same_everywhere(sorted({line.thread for line in self.lines}))
