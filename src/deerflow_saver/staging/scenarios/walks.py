"""Histories that a saver walks wrongly, slowly or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from deerflow_saver.staging.scenarios.graphs import both, loop_free
from deerflow_saver.staging.scenarios.rows import clock, line, written
from deerflow_saver.staging.scenarios.scenario import (
    POSTGRES,
    SQLITE,
    Finding,
    Scenario,
    compared,
)
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]

_PAGE = 1024
"""Rows the Postgres saver reads at a time."""
_VARIABLES = 32766
"""What SQLite lets a statement bind; some distributions build it with a higher limit."""


def _first_page(stage: Stage) -> Finding:
    number = 10
    target = line(stage, ["delta"], _PAGE + 36)[number]
    found = written(stage.walk(target, ["delta"]), "delta")
    return Finding(
        found != list(range(number)), f"{len(found)} of {number} ancestor writes returned"
    )


def _parent_after_child(stage: Stage) -> Finding:
    ids = [f"1f000000-0000-6000-8000-00000000000{number}" for number in (3, 1, 2)]
    found = written(stage.walk(line(stage, ["delta"], 3, ids)[-1], ["delta"]), "delta")
    return Finding(
        found != [0, 1], f"chain 3->1->2, target the last: expected writes [0, 1], got {found}"
    )


def _many_variables(stage: Stage) -> Finding:
    channels, length = [f"c{number}" for number in range(300)], 120
    head = line(stage, channels, length)[-1]
    before = _limit_variables(stage, _VARIABLES)
    asked = f"{len(channels)} channels x {length - 1} ancestors > {_VARIABLES}"
    try:
        found = written(stage.walk(head, channels), "c0")
    except Exception as error:  # noqa: BLE001 - sqlite3's or aiosqlite's, which is the same
        return Finding(present=True, evidence=f"{asked}: {type(error).__name__}({str(error)!r})")
    finally:
        _limit_variables(stage, before)
    return Finding(found != list(range(length - 1)), f"{asked}: {len(found)} writes")


def _limit_variables(stage: Stage, limit: int) -> int:
    """Set the connection's limit; the one it had."""
    connection, category = stage.saver.conn, sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    if not stage.face:
        before: int = connection.setlimit(category, limit)
        return before

    async def set_in_its_thread() -> int:
        set_limit = connection._connection.setlimit  # noqa: SLF001 - aiosqlite hides it
        was: int = await connection._execute(set_limit, category, limit)  # noqa: SLF001
        return was

    return int(stage.wait(set_in_its_thread()))


def _clock_behind(stage: Stage) -> Finding:
    """A turn on a host whose clock is behind, then one more that starts at the wrong head.

    What is left of the turn is read under every durability: the walk loses its parent, and
    where a fork replays the branch it left, the third turn is one.
    """
    states: dict[str, Any] = {}
    for durability in ("async", "exit"):
        graph, thread = stage.compile(loop_free()), stage.thread()
        with clock(seconds=3600):
            stage.run(graph, both("in1"), thread, durability)
        for given in ("in2", "in3"):
            with clock(seconds=0):
                stage.run(graph, both(given), thread, durability)
        every = stage.every(graph, thread).items()
        states |= {f"{durability} {name}": values for name, values in every}
    return compared(states)


def _lock_held(stage: Stage) -> Finding:
    """A write while somebody is in the middle of a listing."""
    line(stage, ["delta"], 2)
    config = line(stage, ["delta"], 2)[0]

    async def write_inside() -> bool:
        async for _ in stage.saver.alist(config):
            write = stage.saver.aput_writes(config, [("delta", [9])], "late")
            try:
                await asyncio.wait_for(write, 1)
            except TimeoutError:
                return True
        return False

    blocked = stage.wait(write_inside())
    how = "blocked" if blocked else "went on"
    return Finding(blocked, f"aput_writes during a paused alist {how}")


def _asked_for(stage: Stage) -> Finding:
    """Which channels a run asks the history of, if one of them was never written."""
    from deerflow_saver.staging.scenarios.migrations import two_channels

    asked: list[list[str]] = []

    def noting(walk: Any) -> Any:
        def call(*, config: Any, channels: Any) -> Any:
            asked.append(sorted(channels))
            return walk(config=config, channels=channels)

        return call

    graph, thread = stage.compile(two_channels()), stage.thread()
    stage.run(graph, {"log": ["a"]}, thread)
    with stage.replaced("get_delta_channel_history", noting):
        stage.values(graph, thread)
    return Finding(any("never" in names for names in asked), f"walk asked for {asked}")


SCENARIOS = (
    Scenario(
        "8448 Postgres walk poisoned when target is outside the first 1024-row page",
        "postgres-first-page",
        _first_page,
        POSTGRES,
    ),
    Scenario(
        "8550 walk loses a parent whose id sorts after its child's",
        "parent-sorts-after-child",
        _parent_after_child,
    ),
    Scenario(
        "8558 AsyncSqliteSaver.alist holds the lock while paused",
        "alist-holds-lock",
        _lock_held,
        ("as",),
    ),
    Scenario(
        "sqlvars SQLite walk exceeds the bound-variable limit (32766)",
        "sqlite-bound-variables",
        _many_variables,
        SQLITE,
    ),
    Scenario(
        "neverwritten a never-written DeltaChannel is walked to the root on every load",
        "never-written-channel",
        _asked_for,
    ),
    Scenario(
        "K1 host clock behind: child id sorts before its parent, next run forks unknowingly and "
        "the branches mix",
        "clock-behind",
        _clock_behind,
    ),
)
