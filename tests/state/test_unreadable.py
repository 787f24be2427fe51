"""Delta threads in front of a graph that was compiled with ordinary channels, in delta mode.

Releases before 1.2.16 show nothing of them, or a snapshot unopened; newer ones read them.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Overwrite

from deerflow_saver import CachedHistorySaver
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state import CheckpointStateAccessor
from support.savers import SaverCase, Storage, every_sync_case

THREAD: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def extend(current: list[str] | None, writes: Any) -> list[str]:
    return [*(current or []), *itertools.chain.from_iterable(writes)]


def schema(log: Any) -> Any:
    return TypedDict("schema", {"log": log, "other": Annotated[list[str], operator.add]})


DELTA = schema(Annotated[list[str], DeltaChannel(extend, snapshot_frequency=2)])
PLAIN = schema(Annotated[list[str], operator.add])


def accessor(state: Any, saver: Any) -> CheckpointStateAccessor:
    builder: Any = StateGraph(state)
    builder.add_node("node", lambda _: {"log": ["out"], "other": ["o"]})
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return CheckpointStateAccessor.bind(builder.compile(), saver, mode="delta")


def same_or_refused(ask: Callable[[], Any], raw: Any, expected: Any) -> None:
    """What the graph itself reads wrongly is refused by place and channel.

    The rest is read; before anything was written to a channel, a release that will read it
    wrongly may be refused already.
    """
    try:
        found = ask()
    except InvalidConfigError as error:
        assert raw != expected or not expected["log"]
        assert "thread '1'" in str(error)  # noqa: PT017
        assert "keeps log as delta writes" in str(error)  # noqa: PT017
    else:
        assert found == raw == expected


@every_sync_case
@pytest.mark.parametrize("wrapped", [False, True], ids=["raw", "wrapped"])
def test_what_cannot_be_read_is_refused_and_not_written_over(
    case: SaverCase, storage: Storage, wrapped: bool
) -> None:
    with case.open(storage) as inner:
        saver: Any = CachedHistorySaver(inner) if wrapped else inner
        delta, plain = accessor(DELTA, saver), accessor(PLAIN, saver)
        for turn in range(3):
            delta.graph.invoke({"log": [f"in{turn}"]}, THREAD)
            for known in delta.history(THREAD):
                raw = plain.graph.get_state(known.config).values
                same_or_refused(lambda at=known: plain.get(at.config).values, raw, known.values)
        before = delta.get(THREAD)
        if plain.graph.get_state(THREAD).values != before.values:
            for write in (plain.update, plain.replace):
                with pytest.raises(InvalidConfigError, match="keeps log as delta writes"):
                    write(THREAD, {"log": ["over"]}, as_node="node")
            with pytest.raises(InvalidConfigError, match="keeps log as delta writes"):
                plain.history(THREAD)
        assert delta.get(THREAD) == before


def test_the_async_face_refuses_as_well() -> None:
    saver = InMemorySaver()
    delta, plain = accessor(DELTA, saver), accessor(PLAIN, saver)
    delta.graph.invoke({"log": ["in"]}, THREAD)
    raw, values = plain.graph.get_state(THREAD).values, delta.get(THREAD).values
    same_or_refused(lambda: asyncio.run(plain.aget(THREAD)).values, raw, values)
    if raw != values:
        with pytest.raises(InvalidConfigError, match="keeps log as delta writes"):
            asyncio.run(plain.aupdate(THREAD, {"log": ["over"]}, as_node="node"))


@every_sync_case
def test_a_thread_that_was_written_through_ordinary_channels_again_is_read(
    case: SaverCase, storage: Storage
) -> None:
    """As the advice says: read through the delta graph, written through the plain one."""
    with case.open(storage) as saver:
        delta, plain = accessor(DELTA, saver), accessor(PLAIN, saver)
        delta.graph.invoke({"log": ["in"], "other": ["i"]}, THREAD)
        values = {name: Overwrite(value) for name, value in delta.get(THREAD).values.items()}
        plain.graph.update_state(THREAD, values, as_node="node")
        assert plain.get(THREAD).values == delta.get(THREAD).values
        plain.update(THREAD, {"log": ["more"]}, as_node="node")
        assert plain.get(THREAD).values["log"] == ["in", "out", "more"]
