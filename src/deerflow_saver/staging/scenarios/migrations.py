"""Channels that become delta channels, or stop being ones."""

# Without `from __future__ import annotations`: LangGraph reads the states' annotations.
import itertools
import operator
from collections.abc import Iterable
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.pregel._checkpoint import channels_from_checkpoint

from deerflow_saver.staging.scenarios.graphs import append, both, loop_free
from deerflow_saver.staging.scenarios.rows import line
from deerflow_saver.staging.scenarios.scenario import Finding, Scenario, compared
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS", "two_channels"]


class _Plain(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


class _Delta(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(append)]


class _TwoDeltas(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(append)]
    never: Annotated[list[Any], DeltaChannel(append)]


def _total(state: int | None, writes: Iterable[int | None]) -> int:
    return (state or 0) + sum(write or 0 for write in writes)


class _Last(TypedDict, total=False):
    number: int | None


class _Total(TypedDict, total=False):
    number: Annotated[int, DeltaChannel(_total)]


class _Union(TypedDict, total=False):
    log: Annotated[list[Any] | None, DeltaChannel(append)]


def _idle(state: Any) -> Any:
    builder = StateGraph(state)
    builder.add_node("n", lambda _state: {})
    builder.add_edge(START, "n")
    builder.add_edge("n", END)
    return builder


def two_channels() -> Any:
    """A graph of two delta channels, `log` and `never`."""
    return _idle(_TwoDeltas)


def _migrated(stage: Stage) -> tuple[Any, Any]:
    """A thread whose channel became a delta channel after its first turn."""
    thread = stage.thread()
    stage.run(stage.compile(_idle(_Plain)), {"log": ["a"]}, thread)
    graph = stage.compile(_idle(_Delta))
    for given in "bc":
        stage.run(graph, {"log": [given]}, thread)
    return graph, thread


def _to_delta(stage: Stage) -> Finding:
    graph, thread = _migrated(stage)
    log = stage.values(graph, thread)["log"]
    return Finding(log != ["a", "b", "c"], f"expected [a,b,c], got {log}")


def _plain_seed(stage: Stage) -> Finding:
    graph, thread = _migrated(stage)
    found = stage.walk(stage.head(graph, thread), ["log"])["log"]
    writes = [value for _, _, value in found["writes"]]
    seed = found.get("seed", "<none>")
    return Finding("seed" not in found, f"history keys={sorted(found)} seed={seed} writes={writes}")


def _to_plain(stage: Stage) -> Finding:
    thread = stage.thread()
    for given in "ab":
        stage.run(stage.compile(_idle(_Delta)), {"log": [given]}, thread)
    log = stage.values(stage.compile(_idle(_Plain)), thread).get("log")
    return Finding(log != ["a", "b"], f"expected [a,b], plain reader got {log}")


def _none_seed(stage: Stage) -> Finding:
    thread = stage.thread()
    for number in (5, None):
        stage.run(stage.compile(_idle(_Last)), {"number": number}, thread)
    graph = stage.compile(_idle(_Total))
    stage.run(graph, {"number": 7}, thread)
    found = stage.values(graph, thread)["number"]
    return Finding(found != 7, f"expected 7, got {found}")  # noqa: PLR2004 - written above


def _union(stage: Stage) -> Finding:
    graph = stage.compile(_idle(_Union))
    try:
        stage.run(graph, {"log": ["a"]}, stage.thread())
    except TypeError as error:
        return Finding(present=True, evidence=repr(error))
    return Finding(present=False, evidence="loaded")


def _no_saver(stage: Stage) -> Finding:
    """Hydrate the head's delta channel without a saver to ask."""
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.run(graph, both("in"), thread)
    row = stage.ask(stage.saver, "get_tuple", thread)
    try:
        channels, _ = channels_from_checkpoint(graph.channels, row.checkpoint)
    except ValueError as error:
        return Finding(present=False, evidence=repr(error))
    return Finding(present=True, evidence=f"no error, value {channels['delta'].get()}")


def _forked_before(stage: Stage) -> Finding:
    """Two children of one checkpoint, and the writes of both, as an old release left them."""
    base = line(stage, ["delta"], 2)[-1]
    children = {}
    for name in ("A", "B"):
        stage.put_writes(base, [("delta", [name])], f"task-{name}")
    for name in ("A", "B"):
        checkpoint = empty_checkpoint()
        child = stage.put(base, checkpoint, {"source": "loop", "step": 2}, {})
        writes = stage.walk(child, ["delta"])["delta"]["writes"]
        children[name] = {
            "delta": list(itertools.chain.from_iterable(value for *_, value in writes)),
            "plain": [0, name],
        }
    return compared(children)


SCENARIOS = (
    Scenario(
        "8384 first write after full->delta migration dropped", "memory-history-folding", _to_delta
    ),
    Scenario(
        "8534 walk cannot see a plain-value seed (walks to the root)",
        "postgres-plain-seed",
        _plain_seed,
    ),
    Scenario(
        "mig2 delta->full: reading a delta thread with a plain reducer channel",
        "delta-read-as-plain",
        _to_plain,
    ),
    Scenario(
        "8686 a stored None is passed over for the older value below it",
        "postgres-none-seed",
        _none_seed,
    ),
    Scenario(
        "U1 DeltaChannel on an Optional/Union type cannot be loaded", "delta-on-union", _union
    ),
    Scenario(
        "nosaver hydrating a DeltaChannel without a saver is silently empty",
        "subgraph-hydration",
        _no_saver,
    ),
    Scenario(
        "16 a thread forked under an old release reads wrong under this one",
        "threads-forked-before",
        _forked_before,
    ),
)
