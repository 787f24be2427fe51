"""`Overwrite`: replaces the value, live and after a reload."""

# Without `from __future__ import annotations`: LangGraph reads the states' annotations.
from typing import Any

from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.errors import InvalidUpdateError
from langgraph.types import Overwrite

from deerflow_saver.staging.scenarios.graphs import both, fan, loop_free, writing
from deerflow_saver.staging.scenarios.scenario import MEMORY, Finding, Scenario, compared, repeated
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]

_FIRST = "overwrite-first-write"


def _over(*items: Any) -> dict[str, Any]:
    return {"delta": Overwrite(list(items)), "plain": Overwrite(list(items))}


def _empty_channel() -> Any:
    channel: Any = BinaryOperatorAggregate(dict[str, int] | None, lambda _old, new: new)  # type: ignore[arg-type]
    channel.key = "goal"
    return channel


def _first_write(_stage: Stage) -> Finding:
    channel = _empty_channel()
    channel.update([Overwrite({"k": 1})])
    value = channel.get()
    return Finding(value != {"k": 1}, f"empty Union channel, first write Overwrite -> {value!r}")


def _two_overwrites(_stage: Stage) -> Finding:
    channel = _empty_channel()
    try:
        channel.update([Overwrite({"k": 1}), Overwrite({"k": 2})])
    except InvalidUpdateError as error:
        return Finding(present=False, evidence=type(error).__name__)
    return Finding(present=True, evidence=f"no error, value {channel.get()!r}")


def _with_siblings(stage: Stage) -> Finding:
    siblings = {f"n{number}": writing(f"n{number}") for number in range(6)}
    siblings["n2"] = lambda _state: _over("OW")
    graph, thread = stage.compile(fan(None, None, **siblings)), stage.thread()
    stage.run(graph, both("in"), thread)
    return compared({"reload": stage.values(graph, thread)})


def _at_the_border(stage: Stage) -> Finding:
    graph, thread, states = stage.compile(loop_free()), stage.thread(), {}
    stage.run(graph, both("in"), thread)
    stage.run(graph, _over("OW"), thread)
    states["input"] = stage.values(graph, thread)
    stage.update(graph, thread, _over("UW"), "n")
    states["update"] = stage.values(graph, thread)
    stage.run(graph, both("next"), thread)
    states["next"] = stage.values(graph, thread)
    return compared(states)


def _as_json(stage: Stage) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.update(graph, thread, both("a"), "n")
    erased = {"value": ["b"], "type": "__overwrite__"}
    stage.update(graph, thread, {"delta": erased}, "n")
    value = stage.values(graph, thread).get("delta")
    return Finding(value != ["b"], f"value {value}")


SCENARIOS = (
    Scenario(
        "4380/6909 BinaryOperatorAggregate keeps the Overwrite wrapper as first value",
        _FIRST,
        _first_write,
        MEMORY,
    ),
    Scenario(
        "6909b two Overwrites in one step slip past the guard on an empty plain channel",
        _FIRST,
        _two_overwrites,
        MEMORY,
    ),
    Scenario(
        "8821 Overwrite plus sibling write in one superstep reads back differently",
        "overwrite-with-sibling",
        repeated(_with_siblings),
    ),
    Scenario(
        "8821i Overwrite as graph input / update_state reads back differently",
        "overwrite-with-sibling",
        _at_the_border,
    ),
    Scenario(
        "owjson JSON-erased Overwrite ({'value':..,'type':'__overwrite__'}) not recognised",
        "overwrite-json-form",
        _as_json,
    ),
)
