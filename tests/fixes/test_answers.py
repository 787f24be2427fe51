"""Defects without a patch: what the guard and the wrapper do, and that the advice helps.

Where a probe says that the installed release has not the defect, the answer must hold too.
"""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Overwrite, StateUpdate, interrupt

from deerflow_saver import (
    CachedHistorySaver,
    HistoryEvent,
    MemoryHistoryCache,
    NonHeadWriteError,
    WriteSlotTakenError,
    fixes,
)
from deerflow_saver.fixes import DEFECTS, RefusedByGuard
from deerflow_saver.fixes._scenes import compiled, extend, said, thread
from deerflow_saver.fixes.clock_behind import _later

pytestmark = pytest.mark.usefixtures("as_released")


def guarded(inner: Any = None) -> CachedHistorySaver:
    return CachedHistorySaver(InMemorySaver() if inner is None else inner, fixes="off")


def agreeing(graph: Any, config: Any = None) -> list[str]:
    """The words of a state that is the same in both channels."""
    values = graph.get_state(config or thread()).values
    assert values["log"] == values["ref"]
    return list(values["ref"])


# -- refused by the guard --------------------------------------------------------------------------


def test_the_guard_answers_these() -> None:
    answered = {d.slug for d in DEFECTS if isinstance(d.remedy, RefusedByGuard)}
    ours = {"fork-replays-branch", "two-writers", "clock-behind", "cancelled-run-saves"}
    ours.add("bulk-updates-lost")
    assert ours <= answered


def test_a_fork_is_refused() -> None:
    graph = compiled({"node": lambda _state: said("out")}, saver=guarded())
    graph.invoke(said("in1"), thread())
    base = graph.get_state(thread()).config
    graph.invoke(said("in2"), thread())
    with pytest.raises(NonHeadWriteError):
        graph.update_state(base, said("U"), as_node="node")
    assert agreeing(graph) == ["in1", "out", "in2", "out"]


def test_of_two_writers_one_is_refused() -> None:
    def node(state: Any) -> Any:
        if state["ref"][-1] == "in2":
            graph.update_state(thread(), said("U"), as_node="node")
        return said("out")

    graph = compiled({"node": node}, saver=guarded())
    graph.invoke(said("in1"), thread())
    with pytest.raises(NonHeadWriteError):
        graph.invoke(said("in2"), thread())
    assert agreeing(graph) == ["in1", "out", "in2", "U"]


def test_of_several_updates_in_one_superstep_none_is_lost_silently() -> None:
    updates = [StateUpdate(said(f"u{i}"), "node") for i in range(4)]
    words = ["in", "out", "u0", "u1", "u2", "u3"]
    graph = compiled({"node": lambda _state: said("out")}, saver=guarded())
    graph.invoke(said("in"), thread())
    try:
        graph.bulk_update_state(thread(), [updates])
    except WriteSlotTakenError:
        assert fixes.status(["bulk-updates-lost"])[0].presence == "present"
        graph.bulk_update_state(thread(), [[update] for update in updates])
    assert agreeing(graph) == words


def test_a_turn_behind_the_clock_of_another_host_is_kept() -> None:
    saver = guarded()
    graph = compiled({"node": lambda _state: said("out")}, saver=saver)
    graph.invoke(said("in1"), thread())
    head: Any = saver.get_tuple(thread())
    ahead: Any = {**head.checkpoint, "id": _later(head.checkpoint["id"])}
    saver.put(head.config, ahead, head.metadata, {})
    graph.invoke(said("in2"), thread())
    assert agreeing(graph) == ["in1", "out", "in2", "out"]


def test_what_follows_a_cancelled_run_sees_its_last_save() -> None:
    class Slow(InMemorySaver):
        async def aput(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
            if metadata.get("step") == 1 and not saving.is_set():
                saving.set()
                for _ in range(200):
                    await asyncio.sleep(0)
            return await super().aput(config, checkpoint, metadata, versions)

    async def node(_state: Any) -> Any:
        return said("out")

    async def overtaken() -> list[str]:
        graph = compiled({"node": node}, saver=guarded(Slow()))
        run = asyncio.ensure_future(graph.ainvoke(said("in"), thread(), durability="async"))
        await saving.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait({run})
        await graph.aupdate_state(thread(), said("U"), as_node="node")
        values = (await graph.aget_state(thread())).values
        assert values["log"] == values["ref"]
        return list(values["ref"])

    saving = asyncio.Event()
    assert asyncio.run(overtaken()) == ["in", "out", "U"]


# -- answered by the wrapper -----------------------------------------------------------------------


def walks(schema: Any, *, max_bytes: int) -> int:
    """How often the last of three loads of a long thread asks the saver for a history."""
    events: list[Any] = []
    words = {name: ["x"] for name in schema.__annotations__ if name != "never"}
    saver = CachedHistorySaver(
        InMemorySaver(),
        MemoryHistoryCache(max_bytes=max_bytes),
        on_event=events.append,
        fixes="off",
    )
    graph = compiled({"node": lambda _state: words}, schema=schema, saver=saver)
    graph.invoke(words, thread())
    for _ in range(20):
        graph.update_state(thread(), words, as_node="node")
    for _ in range(3):
        events.clear()
        graph.get_state(thread())
    return sum(isinstance(e, HistoryEvent) and e.outcome != "hit" for e in events)


def test_a_long_thread_of_updates_is_not_walked_again() -> None:
    schema: Any = TypedDict("schema", {"log": Annotated[list[str], DeltaChannel(extend)]})
    assert walks(schema, max_bytes=1 << 20) == 0
    assert walks(schema, max_bytes=0) > 0


def test_a_channel_never_written_is_not_looked_for_again() -> None:
    words: Any = Annotated[list[str], DeltaChannel(extend)]
    schema: Any = TypedDict("schema", {"log": words, "never": words}, total=False)
    assert walks(schema, max_bytes=1 << 20) == 0
    assert walks(schema, max_bytes=0) > 0


# -- reported with advice --------------------------------------------------------------------------


def test_a_thread_begun_with_plain_input_takes_commands() -> None:
    graph = compiled({"node": lambda _state: said("out")})
    live = graph.invoke(said("u"), thread())
    assert live["ref"] == agreeing(graph) == ["u", "out"]
    graph.invoke(Command(update=said("v"), goto="node"), thread())
    assert agreeing(graph) == ["u", "out", "v", "out"]


def test_a_delta_channel_on_the_bare_type_loads_and_starts_empty() -> None:
    schema: Any = TypedDict("schema", {"log": Annotated[list, DeltaChannel(extend)]}, total=False)
    graph = compiled({"node": lambda _state: {"log": ["out"]}}, schema=schema)
    assert graph.invoke({"log": ["in"]}, thread()) == {"log": ["in", "out"]}


class Torn(InMemorySaver):
    """A saver that fails at one put."""

    armed = False

    def put(self, *args: Any, **kwargs: Any) -> Any:
        if self.armed:
            self.armed = False
            raise OSError("connection lost")
        return super().put(*args, **kwargs)


@pytest.mark.parametrize("wrap", [lambda saver: saver, guarded], ids=["raw", "guarded"])
def test_a_torn_update_is_whole_when_it_is_sent_again(wrap: Any) -> None:
    ran = []

    def node(_state: Any) -> Any:
        ran.append("node")
        return said("out")

    inner = Torn()
    graph = compiled({"node": node}, saver=wrap(inner), interrupt_before="*")
    graph.invoke(said("in"), thread())
    inner.armed = True
    with pytest.raises(OSError, match="connection lost"):
        graph.update_state(thread(), said("U"), as_node="node")
    graph.update_state(thread(), said("U"), as_node="node")
    assert agreeing(graph) == ["in", "U"]
    graph.invoke(None, thread())
    assert agreeing(graph) == ["in", "U"]
    assert ran == []


@pytest.mark.parametrize("wrap", [lambda saver: saver, guarded], ids=["raw", "guarded"])
def test_a_thread_forked_before_is_put_right_by_an_overwrite_at_its_head(wrap: Any) -> None:
    inner = InMemorySaver()
    graph = compiled({"node": lambda _state: said("out")}, saver=inner)
    graph.invoke(said("in"), thread())
    head: Any = inner.get_tuple(thread())
    for word in ("A", "B"):
        checkpoint: Any = {**head.checkpoint, "id": str(uuid6())}
        old = head.checkpoint["channel_versions"]["ref"]
        versions = dict.fromkeys(("log", "ref"), inner.get_next_version(old, None))
        checkpoint["channel_versions"] = {**head.checkpoint["channel_versions"], **versions}
        checkpoint["channel_values"] = {"ref": ["in", "out", word]}
        inner.put_writes(head.config, [("log", [word])], f"task-{word}")
        inner.put(head.config, checkpoint, head.metadata, versions)
    broken = graph.get_state(thread()).values
    assert (broken["log"], broken["ref"]) == (["in", "out", "A", "B"], ["in", "out", "B"])
    right = {"log": Overwrite(["in", "out", "B"]), "ref": Overwrite(["in", "out", "B"])}
    mended = compiled({"node": lambda _state: said("out")}, saver=wrap(inner))
    mended.update_state(thread(), right, as_node="node")
    assert agreeing(mended) == ["in", "out", "B"]


def test_a_step_that_is_finished_first_leaves_nothing_behind() -> None:
    def ask(state: Any) -> Any:
        return said("ans-" + interrupt("q")) if state["ref"] == ["in"] else said("later")

    graph = compiled({"a": lambda _state: said("done"), "b": ask})
    graph.invoke(said("in"), thread())
    graph.invoke(Command(resume="yes"), thread())
    graph.invoke(said("in2"), thread())
    values = graph.get_state(thread()).values
    assert sorted(values["log"]) == sorted(values["ref"])


def test_a_delta_thread_written_by_the_plain_graph_is_read_by_it() -> None:
    schema: Any = TypedDict("schema", {"log": Annotated[list[str], operator.add]})
    saver = InMemorySaver()
    delta = compiled({"node": lambda _state: said("out")}, saver=saver)
    delta.invoke(said("in"), thread())
    value = delta.get_state(thread()).values["log"]
    plain = compiled({"node": lambda _state: {}}, schema=schema, saver=saver)
    plain.update_state(thread(), {"log": Overwrite(value)}, as_node="node")
    assert plain.get_state(thread()).values == {"log": ["in", "out"]}
