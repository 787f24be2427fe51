"""Forks: the fork must not read the branch it left, nor that branch the fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from langgraph.types import StateUpdate

from deerflow_saver.staging.scenarios.graphs import both, chain, counting, loop_free
from deerflow_saver.staging.scenarios.scenario import Finding, Scenario, compared
from deerflow_saver.staging.scenarios.stage import Config, Stage

__all__ = ["SCENARIOS"]

_SLUG = "fork-replays-branch"
_BASES = ("end", "input", "mid")
"""The checkpoint after a turn, the one of the next turn's input, the one before its node."""

Leave = Callable[[Stage, Any, Config], Config]
"""Makes a fork at a base; the config of its newest checkpoint."""


def _two_turns(stage: Stage, durability: str) -> tuple[Any, Config]:
    graph, thread = stage.compile(loop_free()), stage.thread()
    for given in ("in1", "in2"):
        stage.run(graph, both(given), thread, durability)
    return graph, thread


def _base(stage: Stage, graph: Any, thread: Config, where: str) -> Config:
    """The base of a fork in the second turn, whose result it abandons."""
    turn = [state for state in stage.history(graph, thread) if state.values.get("plain")]
    inputs = [state for state in turn if state.metadata["source"] == "input"]
    if where == "end":  # of the first turn
        ends = [state for state in turn if not state.next]
        return dict(ends[1].config)
    if where == "input":
        return dict(inputs[0].config)
    return dict(next(state for state in turn if state.next == ("n",)).config)


def _forked(stage: Stage, where: str, durability: str, leave: Leave) -> tuple[Any, Any]:
    """The values of the fork and of the branch it left."""
    graph, thread = _two_turns(stage, durability)
    old = stage.head(graph, thread)
    fork = leave(stage, graph, _base(stage, graph, thread, where))
    return stage.values(graph, fork), stage.values(graph, old)


def _run(durability: str) -> Leave:
    def leave(stage: Stage, graph: Any, base: Config) -> Config:
        stage.run(graph, both("in3"), base, durability)
        thread = {**base["configurable"]}
        del thread["checkpoint_id"]
        return stage.head(graph, {"configurable": thread})

    return leave


def _update(stage: Stage, graph: Any, base: Config) -> Config:
    return stage.update(graph, base, both("U"), "n")


def _input(stage: Stage, graph: Any, base: Config) -> Config:
    return stage.update(graph, base, both("U"), "__input__")


def _bulk(stage: Stage, graph: Any, base: Config) -> Config:
    supersteps = [[StateUpdate(both("U1"), "n")], [StateUpdate(both("U2"), "n")]]
    config: Config = stage.ask(graph, "bulk_update_state", base, supersteps)
    return config


def _pair(fork: str, old: str, where: str, durability: str, leave: Leave) -> Iterator[Scenario]:
    """Both directions of one way to fork; `fork` and `old` name them."""

    def play_fork(stage: Stage) -> Finding:
        return compared({"fork": _forked(stage, where, durability, leave)[0]})

    def play_old(stage: Stage) -> Finding:
        return compared({"old": _forked(stage, where, durability, leave)[1]})

    yield Scenario(fork, _SLUG, play_fork)
    yield Scenario(old, _SLUG, play_old)


def _by_input() -> Iterator[Scenario]:
    places = [(where, "sync") for where in _BASES] + [("input", "async"), ("end", "exit")]
    for where, durability in places:
        how = f"fork by new input at [{where}] base, durability {durability}"
        yield from _pair(
            f"8443 {how}: fork replays the abandoned branch",
            f"8443r {how}: the other branch replays the fork",
            where,
            durability,
            _run(durability),
        )


def _by_update() -> Iterator[Scenario]:
    ways = {"update_state": _update, "bulk_state": _bulk, "input_state": _input}
    for where in _BASES:
        for name, leave in ways.items():
            yield from _pair(
                f"8443u {name} at [{where}] base: the fork replays the abandoned branch",
                f"8551 {name} at [{where}] base: the other branch replays the update",
                where,
                "sync",
                leave,
            )


def _time_travel(stage: Stage) -> Finding:
    a, b, c = counting("abc")
    graph, thread = stage.compile(chain(a=a, b=b, c=c)), stage.thread()
    stage.run(graph, both("in"), thread, "sync")
    base = next(state for state in stage.history(graph, thread) if state.next == ("b",))
    stage.run(graph, None, base.config, "sync")
    return compared({"fork": stage.values(graph, thread)})


def _many(stage: Stage) -> Finding:
    graph, thread = _two_turns(stage, "sync")
    base, heads = _base(stage, graph, thread, "input"), [stage.head(graph, thread)]
    for given in ("in3", "in4"):
        stage.run(graph, both(given), base, "sync")
        heads.append(stage.head(graph, thread))
    for head in heads:
        stage.run(graph, both("more"), head, "sync")
    return compared(stage.every(graph, thread))


SCENARIOS = (
    *_by_input(),
    *_by_update(),
    Scenario(
        "8443 fork by invoke(None) from a mid-run checkpoint (time travel)", _SLUG, _time_travel
    ),
    Scenario("8443m two forks of one base, then continue all three branches", _SLUG, _many),
)
