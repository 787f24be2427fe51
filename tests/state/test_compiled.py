"""A builder, or a graph where an accessor is due, is refused with what to pass instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver, InvalidConfigError
from deerflow_saver.state import (
    CheckpointStateAccessor,
    capture_rollback_point,
    linearize_resume,
    prepare_run,
    restore,
)

SELECTED: Any = {"configurable": {"thread_id": "1", "checkpoint_id": "c"}}


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(lambda log, writes: [*log, *writes])]


def builder() -> Any:
    made: Any = StateGraph(State)
    made.add_node("answer", lambda state: {})
    made.add_edge(START, "answer")
    return made


@pytest.mark.parametrize(
    "use",
    [
        lambda graph: CheckpointStateAccessor.bind(graph, InMemorySaver(), mode="delta"),
        lambda graph: prepare_run(graph, SELECTED, None),
    ],
    ids=["bind", "prepare_run"],
)
def test_a_builder_is_to_be_compiled_first(use: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidConfigError, match="not compiled"):
        use(builder())


@pytest.mark.parametrize(
    "use",
    [
        lambda graph: linearize_resume(graph, SELECTED),
        lambda graph: capture_rollback_point(graph, {"configurable": {"thread_id": "1"}}),
        lambda graph: restore(graph, None, thread_id="1", run_id="r"),
    ],
    ids=["linearize_resume", "capture_rollback_point", "restore"],
)
def test_a_graph_is_no_accessor(use: Callable[[Any], object]) -> None:
    graph = builder().compile(checkpointer=CachedHistorySaver(InMemorySaver()))
    with pytest.raises(InvalidConfigError, match=r"CheckpointStateAccessor\.bind"):
        use(graph)
