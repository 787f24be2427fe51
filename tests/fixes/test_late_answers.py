"""Late answers and updates, updates of finished tasks, `Overwrite`s in `Command`s.

Each goes wrong as released, is right with its fix, and by the fixes together every state
that a random walk can reach is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import _loop, main
from langgraph.types import Command, Overwrite, interrupt

from deerflow_saver import CachedHistorySaver, fixes
from deerflow_saver.fixes import Presence
from deerflow_saver.fixes._scenes import chain, compiled, said, thread
from fixes.sides import as_released, mended
from fixes.wandering import DURABILITIES, walk, wander
from support.savers import SaverCase, Storage, every_case

SLUGS = ("left-checkpoint-writes", "finished-task-update", "overwrite-in-command")
HOOKED = (
    (_loop.PregelLoop, "_first"),
    (_loop.PregelLoop, "put_writes"),
    (main, "_store_or_fork_delta_writes"),
    (main, "_astore_or_fork_delta_writes"),
)

pytestmark = pytest.mark.usefixtures("as_released")

every_face = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
every_durability = pytest.mark.parametrize("durability", DURABILITIES)


class Play:
    """A graph on either face, under one durability."""

    def __init__(self, graph: Any, durability: Any, *, is_async: bool) -> None:
        self.graph, self.durability, self.is_async = graph, durability, is_async

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.is_async:
            return asyncio.run(getattr(self.graph, f"a{name}")(*args, **kwargs))
        return getattr(self.graph, name)(*args, **kwargs)

    def run(self, value: Any, config: Any) -> Any:
        return self._call("invoke", value, config, durability=self.durability)

    def update(self, config: Any, values: Any, node: str) -> Any:
        return self._call("update_state", config, values, as_node=node)

    def state(self, config: Any) -> Any:
        return self._call("get_state", config)


def ask(*questions: str) -> Callable[[Any], Any]:
    return lambda _state: said(*(f"ans-{interrupt(question)}" for question in questions))


def late_answer(play: Any) -> Any:
    graph = play(compiled({"ask": ask("q")}))
    graph.run(said("in1"), thread())
    paused = graph.state(thread()).config
    graph.run(said("in2"), thread())
    left = graph.state(thread()).config
    graph.run(Command(resume="late"), paused)
    return {"left": graph.state(left), "new": graph.state(thread())}


def late_answer_with_update(play: Any) -> Any:
    graph = play(compiled({"ask": ask("q")}))
    graph.run(said("in"), thread())
    paused = graph.state(thread()).config
    graph.run(Command(resume="A"), thread())
    old = graph.state(thread()).config
    graph.run(Command(resume="B", update=said("U")), paused)
    return {"old": graph.state(old), "new": graph.state(thread())}


def update_on_a_finished_checkpoint(play: Any) -> Any:
    graph = play(compiled({"node": lambda _state: said("out")}))
    graph.run(said("1"), thread())
    older = graph.state(thread()).config
    graph.update(thread(), said("2"), "node")
    graph.run(Command(resume="x", update=said("U")), older)
    return {"head": graph.state(thread()), "older": graph.state(older)}


def late_answer_that_pauses_again(play: Any) -> Any:
    """The update waits on the left checkpoint for the run that answers the second question."""
    graph = play(compiled({"ask": ask("q", "r")}))
    graph.run(said("in1"), thread())
    paused = graph.state(thread()).config
    graph.run(said("in2"), thread())
    left = graph.state(thread()).config
    for answer, word in (("B", "U"), ("C", "V")):
        graph.run(Command(resume=answer, update=said(word)), paused)
    new = graph.state(thread())
    assert new.values["ref"] == ["in1", "U", "V", "ans-B", "ans-C"]
    return {"left": graph.state(left), "new": new}


def one_of_two_late_answers(play: Any) -> Any:
    graph = play(compiled({"one": ask("q"), "two": ask("r")}))
    graph.run(said("in1"), thread())
    paused = graph.state(thread())
    graph.run(said("in2"), thread())
    left = graph.state(thread()).config
    first, second = (interrupt.id for interrupt in paused.interrupts)
    graph.run(Command(resume={first: "A"}), paused.config)
    midway = graph.state(left)
    graph.run(Command(resume={second: "B"}), paused.config)
    return {"midway": midway, "left": graph.state(left), "new": graph.state(thread())}


def update_as_a_finished_task(play: Any) -> Any:
    graph = play(compiled({"done": lambda _state: {"other": 1}, "ask": ask("q")}))
    graph.run(said("in"), thread())
    graph.update(thread(), said("U"), "done")
    assert graph.state(thread()).values["ref"] == ["in", "U"]
    return {"head": graph.state(thread())}


def two_updates_as_a_finished_task(play: Any) -> Any:
    graph = play(compiled({"done": lambda _state: {"other": 1}, "ask": ask("q")}))
    graph.run(said("in"), thread())
    for word in ("U", "V"):
        graph.update(thread(), said(word), "done")
    graph.run(said("more"), thread())
    return {"head": graph.state(thread())}


def overwrite_and_update_on_one_head(play: Any) -> Any:
    graph = play(chain(node=lambda _state: said("out")))
    graph.run(said("in"), thread())
    graph.run(Command(update={"log": Overwrite(["R"]), "ref": Overwrite(["R"])}), thread())
    graph.run(Command(update=said("s"), goto="node"), thread())
    return {"head": graph.state(thread())}


WRONG = {
    late_answer: SLUGS[0],
    late_answer_with_update: SLUGS[0],
    update_on_a_finished_checkpoint: SLUGS[0],
    late_answer_that_pauses_again: SLUGS[0],
    one_of_two_late_answers: SLUGS[0],
    update_as_a_finished_task: SLUGS[1],
    two_updates_as_a_finished_task: SLUGS[1],
    overwrite_and_update_on_one_head: SLUGS[2],
}
every_scene = pytest.mark.parametrize("scene", WRONG, ids=lambda scene: scene.__name__)


def disagreeing(states: Any) -> dict[str, Any]:
    return {
        name: (state.values.get("log"), state.values.get("ref"))
        for name, state in states.items()
        if (state.values.get("log") or []) != (state.values.get("ref") or [])
    }


def played(scene: Any, durability: Any, is_async: bool) -> dict[str, Any]:
    return disagreeing(scene(lambda graph: Play(graph, durability, is_async=is_async)))


@every_scene
def test_as_released_it_goes_wrong_on_some_durability(scene: Any) -> None:
    if as_released(WRONG[scene]):
        axes = product(DURABILITIES, (False, True))
        assert any(played(scene, *axis) for axis in axes)


@every_scene
@every_durability
@every_face
def test_mended_it_is_right(scene: Any, durability: Any, is_async: bool) -> None:
    if not mended(WRONG[scene]):
        (row,) = fixes.status([WRONG[scene]])
        assert row.presence is Presence.FAILED, "a release that cannot be patched says why"
        assert "cannot be patched" in row.evidence or "did not help" in row.evidence
        return
    assert played(scene, durability, is_async) == {}


@pytest.fixture
def all_mended() -> None:
    if not all(mended(slug) for slug in SLUGS):
        pytest.skip("this release cannot be patched")


@pytest.mark.usefixtures("all_mended")
@every_face
@pytest.mark.parametrize("seed", range(12))
def test_every_state_of_a_random_walk_is_right(seed: int, is_async: bool) -> None:
    assert wander(seed, 6, is_async=is_async) is None


@pytest.mark.usefixtures("all_mended")
@every_case
async def test_every_state_of_a_random_walk_is_right_on_every_saver(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as inner:
        saver = CachedHistorySaver(inner, guard="off", fixes="off")
        for seed in range(100, 103):
            assert await walk(seed, 6, saver, is_async=case.kind == "async") is None


def test_as_released_some_random_walk_goes_wrong() -> None:
    if all(as_released(slug) for slug in SLUGS):
        assert any(wander(seed, 6) for seed in range(12))


@pytest.mark.usefixtures("all_mended")
def test_what_is_held_is_in_no_history_and_handed_back() -> None:
    """The left checkpoint's rows: no delta write of the late run under the channel's name."""
    saver = InMemorySaver()
    graph = compiled({"ask": ask("q", "r")}, saver=saver)
    graph.invoke(said("in1"), thread())
    paused: Any = graph.get_state(thread()).config
    graph.invoke(said("in2"), thread())
    before = saver.get_tuple(paused)
    graph.invoke(Command(resume="B", update=said("U")), paused)
    after = saver.get_tuple(paused)
    assert before is not None
    assert after is not None
    new = [w for w in after.pending_writes or () if w not in (before.pending_writes or ())]
    assert not [w for w in new if w[1] in {"log", "ref"}]
    assert [w[2] for w in new if w[1] == "__deerflow_held__"] == [["log", ["U"]], ["ref", ["U"]]]


def test_revert_gives_the_functions_back() -> None:
    hooked = [(owner, name) for owner, name in HOOKED if name in vars(owner)]
    originals = [vars(owner)[name] for owner, name in hooked]
    fixes.apply(SLUGS)
    fixes.revert(SLUGS)
    assert all(vars(o)[n] is old for (o, n), old in zip(hooked, originals, strict=True))


def test_a_reverted_fix_leaves_what_it_stored_readable() -> None:
    if not mended(SLUGS[0]):
        return
    graph = compiled({"ask": ask("q", "r")})
    graph.invoke(said("in1"), thread())
    paused = graph.get_state(thread()).config
    graph.invoke(said("in2"), thread())
    graph.invoke(Command(resume="B", update=said("U")), paused)
    fixes.revert()
    states = list(graph.get_state_history(thread()))
    assert all(state.values["log"] == state.values["ref"] for state in states)
