"""Savers and calls that drop ancestors."""

from __future__ import annotations

import warnings
from typing import Any

from deerflow_saver.staging.scenarios.graphs import both, loop_free
from deerflow_saver.staging.scenarios.scenario import POSTGRES, Finding, Scenario, compared
from deerflow_saver.staging.scenarios.stage import Config, Stage

__all__ = ["SCENARIOS"]


def _two_turns(stage: Stage) -> tuple[Any, Config]:
    graph, thread = stage.compile(loop_free()), stage.thread()
    for given in ("in1", "in2"):
        stage.run(graph, both(given), thread)
    return graph, thread


def _prune(stage: Stage) -> Finding:
    graph, thread = _two_turns(stage)
    stage.ask(stage.saver, "prune", [thread["configurable"]["thread_id"]])
    return compared({"pruned": stage.values(graph, thread)})


def _copy(stage: Stage) -> Finding:
    graph, thread = _two_turns(stage)
    copy = stage.thread()
    ids = [config["configurable"]["thread_id"] for config in (thread, copy)]
    stage.ask(stage.saver, "copy_thread", *ids)
    return compared({"copy": stage.values(graph, copy)})


def _delete_runs(stage: Stage) -> Finding:
    graph, thread = _two_turns(stage)
    stage.ask(stage.saver, "delete_for_runs", ["no-such-run"])
    return compared({"left": stage.values(graph, thread)})


def _shallow(stage: Stage) -> Finding:
    """The same two turns on the shallow saver of the same face, in a schema of its own."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(str(stage.address), autocommit=True) as admin:
        admin.execute("CREATE SCHEMA IF NOT EXISTS shallow")
    options: Any = {
        "autocommit": True,
        "row_factory": dict_row,
        "options": "-c search_path=shallow",
    }
    if not stage.face:
        with psycopg.Connection.connect(str(stage.address), **options) as connection:
            return _on_shallow(connection)
    return compared({"reload": stage.wait(_on_async_shallow(str(stage.address), options))})


def _on_shallow(connection: Any) -> Finding:
    from langgraph.checkpoint.postgres import shallow

    saver = _quietly(shallow.ShallowPostgresSaver, connection)
    saver.setup()
    inner = Stage("p", saver)
    graph, thread = _two_turns(inner)
    return compared({"reload": inner.values(graph, thread)})


async def _on_async_shallow(address: str, options: Any) -> Any:
    import psycopg
    from langgraph.checkpoint.postgres import shallow

    async with await psycopg.AsyncConnection.connect(address, **options) as connection:
        saver = _quietly(shallow.AsyncShallowPostgresSaver, connection)
        await saver.setup()
        thread: Any = Stage("ap", saver).thread()
        graph = loop_free().compile(checkpointer=saver)
        for given in ("in1", "in2"):
            await graph.ainvoke(both(given), thread)
        return (await graph.aget_state(thread)).values


def _quietly(make: Any, connection: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return make(connection)


SCENARIOS = (
    Scenario(
        "shallow ShallowPostgresSaver loses DeltaChannel values silently",
        "shallow-saver",
        _shallow,
        POSTGRES,
    ),
    Scenario("prune severs a DeltaChannel's history", "prune-of-delta-thread", _prune),
    Scenario("copy_thread severs a DeltaChannel's history", "prune-of-delta-thread", _copy),
    Scenario(
        "delete_for_runs severs a DeltaChannel's history", "prune-of-delta-thread", _delete_runs
    ),
)
