"""Writes that overtake the put of their own checkpoint.

LangGraph hands both to threads, one after the other, and a busy machine may begin the second
first. Here it always does: a run's first put waits for the writes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver, GuardEvent, NonHeadWriteError
from guard import bare
from guard.audit import findings, written
from guard.latency import Latency
from guard.scenarios.env import Durability, Env, Face, finish
from guard.scenarios.kinds import say
from guard.scenarios.nodes import speak
from guard.storage import Dump, Place

every_face = pytest.mark.parametrize("face", ["invoke", "ainvoke"])
every_durability = pytest.mark.parametrize("durability", ["sync", "async"])


class Overtaken(BaseCheckpointSaver[Any]):
    """Above a wrapper: begins one put after writes on its checkpoint have ended."""

    def __init__(self, saver: Any) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver
        self.held: Any = None
        """The id of the checkpoint whose put waits; empty before there is one."""
        self.ended, self.aended = threading.Event(), asyncio.Event()
        self.order: list[str] = []

    def hold_next(self) -> None:
        self.held = ""

    def _holds(self, checkpoint: Any) -> bool:
        if self.held == "":
            self.held = checkpoint["id"]
            return True
        return False

    def _wrote(self, config: Any) -> None:
        if config["configurable"]["checkpoint_id"] == self.held:
            self.order.append("writes")
            self.ended.set()
            self.aended.set()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self._holds(checkpoint):
            self.ended.wait()
            self.order.append("put")
        return self.saver.put(config, checkpoint, metadata, new_versions)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self._holds(checkpoint):
            await self.aended.wait()
            self.order.append("put")
        return await self.saver.aput(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        try:
            self.saver.put_writes(config, writes, task_id, task_path)
        finally:
            self._wrote(config)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        try:
            await self.saver.aput_writes(config, writes, task_id, task_path)
        finally:
            self._wrote(config)


def _passed_on(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(self.saver, name)(*args, **kwargs)


for _name in ("get_tuple", "list", "get_delta_channel_history"):
    for _face in (_name, f"a{_name}"):
        setattr(Overtaken, _face, _passed_on(_face))
Overtaken.get_next_version = _passed_on("get_next_version")  # type: ignore[method-assign]


class Conversation:
    """Two turns of a thread, and the place where the first one ended."""

    def __init__(self, inner: Any, face: Face, durability: Durability, **options: Any) -> None:
        self.saver = Overtaken(CachedHistorySaver(inner, **options))
        self.env = Env(self.saver, "mixed", durability, face)
        self.graph = self.env.chain(("a", speak("a")), ("b", speak("b")))
        self.older: Any = None

    async def begin(self) -> None:
        await self.turn("in0", self.env.thread())
        self.older = await self.env.head(self.graph, self.env.thread())
        await self.turn("in1", self.env.thread())
        self.saver.hold_next()

    async def turn(self, text: str, config: Any) -> None:
        await self.env.invoke(self.graph, say(text), config)

    async def logs(self) -> tuple[list[str], list[str]]:
        values = (await self.env.state(self.graph, self.env.thread())).values
        return values["log"], values["ref"]


def on(place: Place, face: Face, durability: Durability, body: Any, **options: Any) -> None:
    async def running() -> None:
        async with place.opened(face, Latency()) as inner:
            conversation = Conversation(inner, face, durability, **options)
            await conversation.begin()
            await body(conversation)
            assert conversation.saver.order[:2] == ["writes", "put"]

    finish(running()) if face == "invoke" else asyncio.run(running())


def left(before: Dump, after: Dump, *, strict: bool) -> list[Any]:
    """Rows that came; without strictness, late ones of other channels than the delta one may."""
    return [r for r in written(before, after) if strict or r[0] != "writes" or r[6] == "log"]


def guarded(events: list[Any], *, behind: bool | None = None) -> list[GuardEvent]:
    """What the guard reported: all, or what built on something refused, or what did not."""
    found = [event for event in events if isinstance(event, GuardEvent)]
    return [event for event in found if behind is None or event.behind is behind]


@pytest.mark.parametrize("strict", [False, True])
@every_durability
@every_face
def test_a_refused_fork_stores_nothing_though_its_writes_come_first(
    empty: Callable[[], Place], face: Face, durability: Durability, *, strict: bool
) -> None:
    place = empty()

    async def fork(conversation: Conversation) -> None:
        before, told = place.dump(), await conversation.logs()
        with pytest.raises(NonHeadWriteError) as caught:
            await conversation.turn("fork", conversation.older)
        assert caught.value.reason == "fork"
        assert left(before, place.dump(), strict=strict) == []
        assert await conversation.logs() == told
        await conversation.turn("in2", conversation.env.thread())
        assert not findings(place.dump())

    on(place, face, durability, fork, strict=strict)


@every_durability
@every_face
def test_a_turn_passes_though_its_writes_come_first(
    empty: Callable[[], Place], face: Face, durability: Durability
) -> None:
    place, events = empty(), list[Any]()

    async def turn(conversation: Conversation) -> None:
        await conversation.turn("in2", conversation.env.thread())
        log, ref = await conversation.logs()
        assert log == ref == ["in0", "a1", "b2", "in1", "a4", "b5", "in2", "a7", "b8"]
        assert not findings(place.dump())

    on(place, face, durability, turn, on_event=events.append)
    assert guarded(events) == []


@every_durability
@every_face
def test_the_put_that_was_overtaken_tells_why(
    empty: Callable[[], Place], face: Face, durability: Durability
) -> None:
    events = list[Any]()

    async def fork(conversation: Conversation) -> None:
        with pytest.raises(NonHeadWriteError):
            await conversation.turn("fork", conversation.older)
        older = conversation.older["configurable"]["checkpoint_id"]
        told = [(event.operation, event.checkpoint_id) for event in guarded(events, behind=False)]
        assert told == [("put", older)]
        assert [event.operation for event in guarded(events, behind=True)][:1] == ["put_writes"]

    on(empty(), face, durability, fork, on_event=events.append)


# -- runs that cannot be told what they go on from -------------------------------------------------


class Failing(InMemorySaver):
    """Fails its next put, before or after it has stored."""

    fails: str | None = None

    def put(self, *args: Any, **kwargs: Any) -> Any:
        fails, self.fails = self.fails, None
        if fails == "before":
            raise OSError(fails)
        stored = super().put(*args, **kwargs)
        if fails == "after":
            raise OSError(fails)
        return stored


def within(run: object, parent: str | None = None) -> Any:
    """The config of a call that a run makes."""
    return {"configurable": {**bare.config(parent)["configurable"], "__pregel_runtime": run}}


def say_in_advance(saver: Any, run: object) -> Any:
    """Delta writes on a checkpoint whose put has yet to begin."""
    made = bare.checkpoint()
    saver.put_writes(within(run, made["id"]), [("log", ["early"])], "task")
    return made


def test_a_run_that_reads_others_by_name_may_go_on_from_there() -> None:
    saver, run = CachedHistorySaver(InMemorySaver()), object()
    first = bare.put(saver)
    head = bare.put(saver, first)
    saver.get_tuple(within(run, first))
    saver.get_tuple(within(run, head))
    made = say_in_advance(saver, run)
    saver.put(within(run, head), made, bare.DELTA, {})
    assert saver.get_tuple(bare.config()).checkpoint["id"] == made["id"]


def test_a_run_may_go_on_from_a_put_that_was_stored_and_failed() -> None:
    inner, run = Failing(), object()
    saver = CachedHistorySaver(inner)
    bare.put(saver)
    head = saver.get_tuple(within(run)).checkpoint["id"]
    inner.fails, after = "after", bare.checkpoint()
    with pytest.raises(OSError, match="after"):
        saver.put(within(run, head), after, bare.DELTA, {})
    made = say_in_advance(saver, run)
    saver.put(within(run, after["id"]), made, bare.DELTA, {})
    assert saver.get_tuple(bare.config()).checkpoint["id"] == made["id"]


def test_a_run_goes_on_from_what_it_put_while_the_thread_was_full() -> None:
    inner, run = Failing(), object()
    saver = CachedHistorySaver(inner)
    head = bare.checkpoint()
    saver.put(bare.config(), head, {}, {})
    saver.get_tuple(within(run))
    full = bare.checkpoint()
    saver.put(within(run, head["id"]), full, {}, {})
    inner.fails = "before"
    with pytest.raises(OSError, match="before"):
        bare.put(saver, full["id"])  # would have been the first delta one
    made = say_in_advance(saver, run)
    saver.put(within(run, full["id"]), made, bare.DELTA, {})
    assert saver.get_tuple(bare.config()).checkpoint["id"] == made["id"]


def test_a_run_that_was_left_behind_says_nothing_in_advance() -> None:
    inner, run = InMemorySaver(), object()
    saver = CachedHistorySaver(inner)
    bare.put(saver)
    head = saver.get_tuple(within(run)).checkpoint["id"]
    bare.put(saver, head)
    with pytest.raises(NonHeadWriteError, match="fork"):
        say_in_advance(saver, run)
    assert not any(inner.writes.values())


def test_a_caller_outside_runs_goes_on_from_where_it_likes() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    bare.put(saver)
    head = saver.get_tuple(bare.config()).checkpoint["id"]
    second, made = bare.put(saver, head), bare.checkpoint()
    saver.put_writes(bare.config(made["id"]), [("log", ["early"])], "task")
    saver.put(bare.config(second), made, bare.DELTA, {})
    assert saver.get_tuple(bare.config()).checkpoint["id"] == made["id"]


def test_writes_upon_a_checkpoint_that_there_is_not_are_refused_as_their_put_will_be() -> None:
    inner, run = InMemorySaver(), object()
    saver = CachedHistorySaver(inner)
    bare.put(saver)
    missing = bare.checkpoint()["id"]
    assert saver.get_tuple(within(run, missing)) is None
    with pytest.raises(NonHeadWriteError) as early:
        say_in_advance(saver, run)
    with pytest.raises(NonHeadWriteError) as late:
        saver.put(within(run, missing), bare.checkpoint(), bare.DELTA, {})
    assert early.value.reason == late.value.reason == "orphan"
