"""Listings through the wrapper: the saver's rows, and its lock free while they are looked at."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from deerflow_saver import CachedHistorySaver
from deerflow_saver.walks.pages import Pager
from support.savers import CASES, SaverCase, Storage, every_case
from walks.lines import Face, config

every_sql_case = pytest.mark.parametrize("case", [c for c in CASES if c.name != "memory"], ids=str)
IDS = [f"{number:03}" for number in range(150)]


async def _stored(case: SaverCase, raw: Any) -> Face:
    """150 checkpoints in three namespaces of two threads; every third id is in two places."""
    face = Face(case, raw)
    for number, cid in enumerate(IDS):
        parent = IDS[number - 1] if number else None
        await face.put(cid, parent, checkpoint_ns="" if number % 2 else "child")
        if number % 3 == 0:
            await face.put(cid, parent, thread_id="other")
        if number % 5 == 0:
            await face.write(cid, [cid])
    return face


EVERYTHING: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    ({"configurable": {"thread_id": "thread"}}, {}),
    (config(), {}),
    (config(), {"limit": 1}),
    (config(), {"limit": 70}),
    (config(), {"limit": 9, "before": config(IDS[100])}),
    (config(), {"before": config(IDS[33])}),
    (config(), {"filter": {"step": 1}}),
    (config(), {"filter": {"step": 2}}),
    (config(), {"filter": {"step": 1}, "limit": 66}),
    (config(IDS[21]), {}),
    (config(IDS[21]), {"limit": 5}),
    (None, {"limit": 65}),
    (None, {"limit": 12, "filter": {"step": 1}, "before": config(IDS[50])}),
    ({"configurable": {"thread_id": "nobody"}}, {}),
]


def _place(row: Any) -> tuple[str, str, str]:
    names = row.config["configurable"]
    return names["checkpoint_id"], names["thread_id"], names["checkpoint_ns"]


@every_case
async def test_every_listing_has_the_savers_rows(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        plain = await _stored(case, raw)
        face = Face(case, CachedHistorySaver(raw, guard="off"))
        for where, options in EVERYTHING:
            ours, theirs = await face.rows(where, **options), await plain.rows(where, **options)
            if where is None and "limit" in options and case.name != "memory":
                # which of the rows that share the last id are cut off is chance
                last = ours[-1].config["configurable"]["checkpoint_id"]
                ours = [row for row in ours if _place(row)[0] != last]
                theirs = [row for row in theirs if _place(row)[0] != last]
            if case.name != "memory":  # rows with one id come in any order
                ours, theirs = sorted(ours, key=_place), sorted(theirs, key=_place)
            assert ours == theirs, (where, options)


@every_case
async def test_newer_rows_come_first(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        await _stored(case, raw)
        rows = await Face(case, CachedHistorySaver(raw, guard="off")).rows(config())
        ids = [_place(row)[0] for row in rows]
        assert ids == sorted(ids, reverse=True)
        assert len(ids) == 75


@every_sql_case
async def test_a_write_between_two_rows_returns(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        await _stored(case, raw)
        face = Face(case, CachedHistorySaver(raw, guard="off"))
        seen = 0
        if case.kind == "async":
            async for row in face.saver.alist(config()):
                await asyncio.wait_for(face.write(_place(row)[0], ["in the loop"], task="t"), 20)
                seen += 1
        else:
            for row in face.saver.list(config()):
                cid = _place(row)[0]
                task = threading.Thread(
                    target=face.saver.put_writes,
                    args=(config(cid), [("log", ["in the loop"])], "t"),
                    daemon=True,
                )
                task.start()
                task.join(20)
                assert not task.is_alive(), "the write never gets the saver's lock"
                seen += 1
        assert seen == 75
        last = await face.call("get_tuple", config(IDS[1]))
        assert ("t", "log", ["in the loop"]) in last.pending_writes


@every_sql_case
async def test_a_listing_left_half_way_leaves_nothing_locked(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        await _stored(case, raw)
        saver = CachedHistorySaver(raw, guard="off")
        if case.kind == "async":
            listing = saver.alist(config())
            await anext(listing)
        else:
            listing = saver.list(config())
            next(listing)
        assert not raw.lock.locked()


@every_sql_case
async def test_switched_off_the_listing_is_the_savers_own(
    case: SaverCase, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "off")
    async with case.aopen(storage) as raw:
        await _stored(case, raw)
        saver = CachedHistorySaver(raw, guard="off")
        if case.kind == "async":
            listing = saver.alist(config())
            await anext(listing)
            assert raw.lock.locked()
            await listing.aclose()
        else:
            listing = saver.list(config())
            next(listing)
            assert raw.lock.locked()
            listing.close()


class _Row:
    def __init__(self, checkpoint_id: str) -> None:
        self.config = {"configurable": {"checkpoint_id": checkpoint_id}}


def _read(ids: list[str], **kwargs: Any) -> tuple[list[str], list[int]]:
    """What a pager makes of rows with these ids, and the sizes of the pages it asked for."""
    pager, out, sizes = Pager(kwargs), [], []
    while not pager.done:
        asked = pager.kwargs
        bound = asked.get("before", {"configurable": {"checkpoint_id": "~"}})
        below = [cid for cid in ids if cid < bound["configurable"]["checkpoint_id"]]
        sizes.append(asked["limit"])
        page = [_Row(cid) for cid in below[: asked["limit"]]]
        out += [row.config["configurable"]["checkpoint_id"] for row in pager.take(page)]
    return out, sizes


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 500])
@pytest.mark.parametrize("limit", [None, 1, 8, 64, 65, 300])
def test_pages_hold_every_row_once(count: int, limit: int | None) -> None:
    ids = [f"{number:04}" for number in reversed(range(count))]
    kwargs = {} if limit is None else {"limit": limit}
    rows, sizes = _read(ids, **kwargs)
    assert rows == ids[:limit]
    assert max(sizes) <= 64


def test_rows_that_share_an_id_are_not_torn_apart() -> None:
    ids = ["9"] * 3 + ["5"] * 100 + ["3"]
    assert _read(ids)[0] == ids
