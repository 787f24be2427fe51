"""What a trial sees of savers that keep everything, and of savers that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver._plan import adrive, drive
from deerflow_saver.doctor.capabilities import acalls, calls, of_class
from deerflow_saver.doctor.scratch import scratch
from deerflow_saver.doctor.trial import Observed, trial
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

Order = Callable[[str], Any]


def _whole(order: Any) -> Observed:
    return Observed(
        parent_links=True, write_order=order, idempotent_writes=True, delta_history=True
    )


def _kind(case: SaverCase) -> str:
    return next(kind for kind in ("memory", "sqlite", "postgres") if kind in case.name)


class Forgetful(InMemorySaver):
    """Keeps no parents."""

    def put(self, config: Any, *rest: Any) -> Any:
        bare = {key: config["configurable"][key] for key in ("thread_id", "checkpoint_ns")}
        return super().put({"configurable": bare}, *rest)


class Pathless(InMemorySaver):
    def put_writes(
        self, config: Any, writes: Sequence[Any], task_id: str, task_path: str = ""
    ) -> None:
        super().put_writes(config, writes, task_id)


class Repeating(InMemorySaver):
    """Stores a repeated write once more."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def put_writes(
        self, config: Any, writes: Sequence[Any], task_id: str, task_path: str = ""
    ) -> None:
        self._calls += 1
        super().put_writes(config, writes, f"{task_id}{self._calls}", task_path)


class Undeletable(InMemorySaver):
    def delete_thread(self, thread_id: str) -> None:
        raise NotImplementedError


@every_sync_case
def test_langgraphs_own_savers_keep_everything(
    case: SaverCase, storage: Storage, order_of: Order
) -> None:
    with case.open(storage) as saver:
        assert drive(trial("t"), calls(saver))[0] == _whole(order_of(_kind(case)))


@every_async_case
async def test_langgraphs_own_savers_keep_everything_async(
    case: SaverCase, storage: Storage, order_of: Order
) -> None:
    async with case.aopen(storage) as saver:
        seen = (await adrive(trial("t"), acalls(saver)))[0]
        assert seen == _whole(order_of(_kind(case)))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_what_is_said_of_a_class_is_what_its_savers_do(kind: Any, order_of: Order) -> None:
    for asynchronous in (False, True):
        found = await asyncio.to_thread(of_class, kind, asynchronous=asynchronous)
        assert found[1] == _whole(order_of(kind))


def test_nothing_is_said_of_an_unknown_class() -> None:
    assert of_class("other", asynchronous=False) == ("nothing", None)


def test_a_saver_without_parents_is_seen() -> None:
    seen = drive(trial("t"), calls(Forgetful()))[0]
    assert not seen.parent_links
    assert not seen.delta_history


def test_a_saver_that_drops_the_task_path_is_seen() -> None:
    assert drive(trial("t"), calls(Pathless()))[0].write_order == "task id"


def test_a_saver_that_stores_a_repeated_write_twice_is_seen() -> None:
    assert not drive(trial("t"), calls(Repeating()))[0].idempotent_writes


def test_a_scratch_thread_is_deleted(order_of: Order) -> None:
    saver = InMemorySaver()
    found = drive(scratch("t", lambda: None), calls(saver))
    assert found.left is None
    assert found.observed == _whole(order_of("memory"))
    assert not list(saver.list(None))


def test_a_scratch_thread_is_deleted_after_a_failure_too() -> None:
    saver = InMemorySaver()

    def broken(_: Any) -> Any:
        message = "connection lost"
        raise OSError(message)

    found = drive(scratch("t", lambda: None), {**calls(saver), "get_delta_channel_history": broken})
    assert found.error == "OSError: connection lost"
    assert found.left is None
    assert not list(saver.list(None))


def test_a_scratch_thread_that_stays_is_said() -> None:
    found = drive(scratch("t", lambda: None), calls(Undeletable()))
    assert found.left == "NotImplementedError: "
