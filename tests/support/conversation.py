"""A conversation with a model that calls several tools at once, and all reads of it.

The state has delta channels of two cadences, one of them holding a dict, beside a plain
reducer channel, so that a superstep has parallel writers on every kind of channel.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send, StateSnapshot

Saver = BaseCheckpointSaver[Any]
Graph = CompiledStateGraph[Any, Any, Any, Any]

CHANNELS = ("messages", "notes", "facts", "plain", "unheard of")
"""What every history is asked for: delta channels, one that is none, one that is not there."""
TOOLS = 3


def append(current: Any, writes: Sequence[Any]) -> list[Any]:
    """A reducer for delta channels that hold lists."""
    joined = list(current or [])
    for write in writes:
        joined.extend(write)
    return joined


def merge(current: Any, writes: Sequence[Any]) -> dict[str, Any]:
    """A reducer for delta channels that hold dicts."""
    joined = dict(current or {})
    for write in writes:
        joined.update(write)
    return joined


class State(TypedDict, total=False):
    """A conversation."""

    messages: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=4)]
    notes: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=1000)]
    facts: Annotated[dict[str, Any], DeltaChannel(merge, snapshot_frequency=1000)]
    plain: Annotated[list[str], operator.add]


def _model(state: State) -> State:
    number = len(state["messages"])
    calls: list[ToolCall] = [
        {"name": "look_up", "args": {"word": f"w{i}"}, "id": f"call-{number}-{i}"}
        for i in range(TOOLS)
    ]
    return _said(AIMessage("", id=f"asks-{number}", tool_calls=calls))


def _fan_out(state: State) -> list[Send | str]:
    calls = state["messages"][-1].tool_calls
    return [*(Send("tool", call) for call in calls), "audit"]


def _tool(state: ToolCall) -> State:
    name = str(state["id"])
    found = ToolMessage(f"found {state['args']['word']}", id=name, tool_call_id=name)
    return {**_said(found), "facts": {name: [state["args"]]}}


def _audit(state: State) -> State:
    return {"notes": [{"heard": len(state["messages"])}], "plain": ["audited"]}


def _answer(state: State) -> State:
    return _said(AIMessage("done", id=f"answer-{len(state['messages'])}"))


def _said(message: Any) -> State:
    return {"messages": [message], "notes": [{"id": message.id}], "plain": [message.id]}


def conversation(saver: Saver) -> Graph:
    """The graph, compiled with `saver`: four checkpoints a turn, four parallel writers."""
    builder = StateGraph(State)
    builder.add_node("model", _model)
    builder.add_node("tool", _tool, input_schema=ToolCall)
    builder.add_node("audit", _audit)
    builder.add_node("answer", _answer)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", _fan_out, ["tool", "audit"])
    builder.add_edge("tool", "answer")
    builder.add_edge("audit", "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def question(number: int) -> State:
    """The input of a turn."""
    return _said(HumanMessage(f"question {number}", id=f"question-{number}"))


def thread(thread_id: str = "thread", **more: str) -> RunnableConfig:
    """A config that names a thread, and whatever else a saver reads from it."""
    return {"configurable": {"thread_id": thread_id, **more}}


def at(row: CheckpointTuple, config: RunnableConfig) -> RunnableConfig:
    """`config` for one checkpoint of its thread."""
    found: dict[str, Any] = row.config["configurable"]
    place = {name: found[name] for name in ("checkpoint_id", "checkpoint_ns") if name in found}
    return {"configurable": config["configurable"] | place}


class Reads(TypedDict):
    """Whatever can be read of a thread."""

    head: StateSnapshot
    states: list[StateSnapshot]
    rows: list[CheckpointTuple]
    single_rows: list[CheckpointTuple | None]
    histories: list[Any]
    single_histories: list[Any]


def read_all(saver: Saver, config: RunnableConfig) -> Reads:
    """Every read of a thread, through the sync face."""
    graph = conversation(saver)
    rows = list(saver.list(config))
    places = [at(row, config) for row in rows]
    return {
        "head": graph.get_state(config),
        "states": list(graph.get_state_history(config)),
        "rows": rows,
        "single_rows": [saver.get_tuple(place) for place in places],
        "histories": [
            saver.get_delta_channel_history(config=place, channels=CHANNELS) for place in places
        ],
        "single_histories": [
            saver.get_delta_channel_history(config=place, channels=["facts"]) for place in places
        ],
    }


async def aread_all(saver: Saver, config: RunnableConfig) -> Reads:
    """Every read of a thread, through the async face."""
    graph = conversation(saver)
    rows = [row async for row in saver.alist(config)]
    places = [at(row, config) for row in rows]
    return {
        "head": await graph.aget_state(config),
        "states": [state async for state in graph.aget_state_history(config)],
        "rows": rows,
        "single_rows": [await saver.aget_tuple(place) for place in places],
        "histories": [
            await saver.aget_delta_channel_history(config=place, channels=CHANNELS)
            for place in places
        ],
        "single_histories": [
            await saver.aget_delta_channel_history(config=place, channels=["facts"])
            for place in places
        ],
    }


def assert_reads_equal(saver: Saver, raw: Saver, config: RunnableConfig) -> Reads:
    """Compare both savers' reads of a thread; of the wrapped one also the second time."""
    expected = read_all(raw, config)
    assert expected["rows"], "nothing is stored, so nothing is compared"
    for _ in range(2):
        found = read_all(saver, config)
        _compare(found, expected)
        _deface(found)
    return expected


async def aassert_reads_equal(saver: Saver, raw: Saver, config: RunnableConfig) -> Reads:
    """`assert_reads_equal` for the async face."""
    expected = await aread_all(raw, config)
    assert expected["rows"], "nothing is stored, so nothing is compared"
    for _ in range(2):
        found = await aread_all(saver, config)
        _compare(found, expected)
        _deface(found)
    return expected


def _compare(found: Reads, expected: Reads) -> None:
    """Equal, and of equal types: `repr` tells a tuple from a list, and True from 1."""
    for name, read in expected.items():
        assert found[name] == read, name  # type: ignore[literal-required]
        assert repr(found[name]) == repr(read), name  # type: ignore[literal-required]


def _deface(reads: Reads) -> None:
    """Change what was handed out: no later read may show it."""
    for history in [*reads["histories"], *reads["single_histories"]]:
        for entry in history.values():
            for _, _, value in entry["writes"]:
                if isinstance(value, dict):
                    value["defaced"] = True
                elif isinstance(value, list):
                    for item in value:
                        _deface_item(item)
                    value.append("defaced")
            entry["writes"].append(("defaced", "", None))


def _deface_item(item: Any) -> None:
    if isinstance(item, dict):
        item["defaced"] = True
    elif hasattr(item, "content"):
        item.content = "defaced"


def turns(saver: Saver, config: RunnableConfig, count: int = 2) -> Iterator[int]:
    """Run turns one by one, for a comparison after each."""
    for number in range(count):
        conversation(saver).invoke(question(number), config)
        yield number


async def aturns(saver: Saver, config: RunnableConfig, count: int = 2) -> AsyncIterator[int]:
    """`turns` for the async face."""
    for number in range(count):
        await conversation(saver).ainvoke(question(number), config)
        yield number
