"""`prune` does not delete what delta channels are rebuilt from."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

from deerflow_saver import CachedHistorySaver, PrunedHistoryError
from deerflow_saver.walks.scenes import prunes
from support.savers import CASES, SaverCase, Storage
from walks.lines import Face, config

pytestmark = pytest.mark.skipif(
    not prunes(PostgresSaver), reason="this release of the saver cannot prune"
)
every_postgres = pytest.mark.parametrize(
    "case", [c for c in CASES if "postgres" in c.name], ids=str
)
THREAD = config()


async def _updated_only(face: Face) -> None:
    """A thread as `update_state` left it in old releases: no counters, no snapshot."""
    await face.store([("1", None), ("2", "1"), ("3", "2")])


async def _full(face: Face) -> None:
    """A thread of an ordinary channel, and of one that is consumed in the next step."""
    values = [{"log": ["a"]}, {"log": ["a", "b"], "once": ["x"]}, {"log": ["a", "b", "c"]}]
    for number, stored in enumerate(values):
        checkpoint: Any = {**empty_checkpoint(), "id": str(number + 1), "channel_values": stored}
        checkpoint["channel_versions"] = versions = {"log": str(number), "once": str(number)}
        parent = config(str(number) if number else None)
        await face.call("put", parent, checkpoint, {"step": number}, versions)
        for channel in ("log", "once", "branch:to:node", "__start__"):
            arguments = (config(checkpoint["id"]), [(channel, ["w"])], f"{channel}-{number}", "~p")
            await face.call("put_writes", *arguments)


@every_postgres
@pytest.mark.parametrize("guard", ["refuse", "off"])
async def test_a_delta_thread_without_counters_is_not_pruned(
    case: SaverCase, storage: Storage, guard: Any
) -> None:
    async with case.aopen(storage) as raw:
        await _updated_only(Face(case, raw))
        face = Face(case, CachedHistorySaver(raw, guard=guard))
        with pytest.raises(PrunedHistoryError, match=r"'thread' \(log\)") as caught:
            await face.call("prune", ["nobody", "thread"])
        assert caught.value.channels == {"thread": ("log",)}
        with pytest.raises(NotImplementedError):
            await face.call("prune", ["thread"], strategy="keep_latest")
        assert await face.values("3") == ["1", "2"]


@every_postgres
async def test_as_released_such_a_thread_is_emptied(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        await _updated_only(Face(case, raw))
        face = Face(case, CachedHistorySaver(raw, guard="off", fixes="off"))
        await face.call("prune", ["thread"])
        assert await face.values("3") == []


@every_postgres
async def test_a_full_thread_is_pruned(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, CachedHistorySaver(raw))
        await _full(face)
        await face.call("prune", ["thread"])
        rows = await face.rows(THREAD)
        assert [row.checkpoint["channel_values"] for row in rows] == [{"log": ["a", "b", "c"]}]


@every_postgres
async def test_a_channel_known_as_delta_must_be_stored_by_the_head(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        await plain.store([("1", None)])
        await plain.put("2", "1", ["full then"])
        await plain.store([("3", "2")])
        await plain.put("4", "3")
        face = Face(case, CachedHistorySaver(raw, guard="off"))
        assert await face.values("4") == [["full then"], "3"]
        with pytest.raises(PrunedHistoryError):
            await face.call("prune", ["thread"])
        await plain.write("4", "last")
        await plain.put("5", "4", ["full again"])
        await face.call("prune", ["thread"])
        assert [row.checkpoint["id"] for row in await face.rows(THREAD)] == ["5"]


@every_postgres
async def test_a_thread_that_the_saver_recognises_is_left_to_it(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        plain = Face(case, raw)
        checkpoint = {**empty_checkpoint(), "id": "1", "channel_versions": {"log": "1"}}
        counters = {"step": 1, "counters_since_delta_snapshot": {"log": (1, 1)}}
        await plain.call("put", THREAD, checkpoint, counters, {"log": "1"})
        await plain.write("1", "w")
        for face in (plain, Face(case, CachedHistorySaver(raw))):
            with pytest.raises(NotImplementedError, match="use a DeltaChannel: thread") as caught:
                await face.call("prune", ["thread"])
            assert type(caught.value) is NotImplementedError


@every_postgres
async def test_a_whole_thread_may_be_deleted(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        face = Face(case, CachedHistorySaver(raw))
        await _updated_only(Face(case, raw))
        await face.call("prune", ["thread"], strategy="delete")
        assert await face.rows(THREAD) == []


def test_the_error_survives_pickling() -> None:
    error = PrunedHistoryError({"thread": ("log",)})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.channels) == (str(error), error.channels)
