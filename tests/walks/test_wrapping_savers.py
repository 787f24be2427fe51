"""Savers of one's own whose `put_writes` hides `task_path`."""

from __future__ import annotations

import inspect
import logging
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.walks.habits import loses_order


class Passing(InMemorySaver):
    """Passes every argument on."""

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        super().put_writes(*args, **kwargs)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        await super().aput_writes(*args, **kwargs)


class Naming(InMemorySaver):
    """Takes the path by name, among others."""

    def put_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = "", **_: Any
    ) -> None:
        super().put_writes(config, writes, task_id, task_path)


class Refusing(InMemorySaver):
    """From before the path was an argument."""

    def put_writes(self, config: Any, writes: Any, task_id: str) -> None:  # type: ignore[override]
        super().put_writes(config, writes, task_id)


def extend(current: list[int] | None, writes: list[list[int]]) -> list[int]:
    return [*(current or []), *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    log: Annotated[list[int], DeltaChannel(extend)]
    ref: Annotated[list[int], operator.add]


def graph_on(saver: Any) -> Any:
    builder: Any = StateGraph(State)
    for number in range(7):
        builder.add_node(f"n{number}", lambda _, n=number: {"log": [n], "ref": [n]})
        builder.add_edge(START, f"n{number}")
        builder.add_edge(f"n{number}", END)
    return builder.compile(checkpointer=saver)


THREAD: Any = {"configurable": {"thread_id": "thread"}}
NUMBERS = list(range(7))


@pytest.mark.parametrize("cls", [Passing, Naming])
@pytest.mark.parametrize("guard", ["refuse", "off"])
async def test_the_order_of_parallel_writes_is_kept(cls: Any, guard: Any) -> None:
    for asynchronous in (False, True):
        saver = CachedHistorySaver(cls(), guard=guard)
        graph = graph_on(saver)
        if asynchronous:
            await graph.ainvoke({"log": []}, THREAD)
        else:
            graph.invoke({"log": []}, THREAD)
        readers = [graph, graph_on(saver.with_allowlist([]))]
        if not loses_order(InMemorySaver).wrong:
            readers.append(graph_on(saver.inner))
        for reader in readers:
            values = reader.get_state(THREAD).values
            assert values["log"] == values["ref"] == NUMBERS


def test_without_the_fix_the_path_is_lost() -> None:
    for saver in (Passing(), CachedHistorySaver(Passing(), fixes="off")):
        graph = graph_on(saver)
        graph.invoke({"log": []}, THREAD)
        rows = [row for written in saver.writes.values() for row in written.values()]
        assert {path for _, channel, _, path in rows if channel == "log"} == {""}


def test_the_signature_is_the_savers_own_but_for_a_hidden_path() -> None:
    def names(saver: Any) -> list[str]:
        return list(inspect.signature(saver.put_writes).parameters)

    asked = ["config", "writes", "task_id", "task_path"]
    assert names(CachedHistorySaver(Passing())) == asked
    assert names(CachedHistorySaver(Passing(), fixes="off")) == ["args", "kwargs"]
    assert names(CachedHistorySaver(Passing(), fixes=["alist-holds-lock"])) == ["args", "kwargs"]
    assert names(CachedHistorySaver(Passing(), fixes=["star-args-wrapper"])) == asked
    assert names(CachedHistorySaver(Naming())) == names(Naming())
    assert names(CachedHistorySaver(Refusing())) == names(Refusing())
    assert names(CachedHistorySaver(InMemorySaver())) == names(InMemorySaver())


def test_a_saver_that_takes_no_path_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Old(Refusing):
        pass

    with caplog.at_level(logging.WARNING, "deerflow_saver"):
        for _ in range(3):
            CachedHistorySaver(Old())
        CachedHistorySaver(Naming())
    assert [record.message.split(" takes ")[0] for record in caplog.records] == ["Old.put_writes"]
