"""What a step wrote that full mode gave up stays given up when its channel turns delta."""

from __future__ import annotations

from typing import Any

import pytest

from deerflow_saver import CachedHistorySaver, MemoryHistoryCache, fixes, open_cache
from deerflow_saver.walks import walker
from support.savers import SaverCase, Storage, every_case
from walks.given_up import Life, words_of

BEFORE = {
    "asked": ("ask lost", "idle"),
    "failed": ("fail lost", "idle"),
    "twice": ("ask lost", "ask again", "idle", "idle"),
    "late": ("idle", "ask lost", "idle", "fail more", "idle"),
}
AFTER = {
    "turns": ("say one", "idle", "say two"),
    "updates": ("update one", "update two"),
    "both": ("idle", "say one", "update two", "say three"),
}
LIVES = [("asked", "turns"), ("failed", "updates"), ("twice", "turns"), ("late", "both")]


def _wrapped(raw: Any, **options: Any) -> Any:
    return CachedHistorySaver(raw, cache=MemoryHistoryCache(**options))


async def _right(life: Life, saver: Any) -> list[Any]:
    """What is shown, one state after the other, where it is all right."""
    states = await life.states(saver)
    assert states
    for values in [*states, *await life.listed(saver)]:
        shown, right = words_of(values)
        assert shown == right
    return [words_of(values)[1] for values in states]


@pytest.mark.parametrize(("before", "after"), LIVES)
@every_case
async def test_no_state_shows_what_was_given_up(
    case: SaverCase, storage: Storage, before: str, after: str
) -> None:
    async with case.aopen(storage) as raw:
        life = Life(case)
        warm = _wrapped(raw)
        await life.run(warm, *BEFORE[before])
        life.delta = ("log", "late")
        for what in AFTER[after]:
            await life.run(warm, what)
            await _right(life, warm)
        await _right(life, _wrapped(raw))
        await _right(life, _wrapped(raw, max_bytes=0))


@every_case
async def test_a_wrapper_that_reads_first_and_writes_then_is_right(
    case: SaverCase, storage: Storage
) -> None:
    """Nothing of the thread has passed through the wrapper that turns it delta."""
    async with case.aopen(storage) as raw:
        life = Life(case)
        await life.run(raw, *BEFORE["late"])
        life.delta = ("log", "late")
        warm = _wrapped(raw)
        await _right(life, warm)
        await life.run(warm, "say one", "both two", "idle")
        seen = await _right(life, warm)
        assert seen[0] == [["one", "two"], ["two"]]
        assert await _right(life, _wrapped(raw)) == seen


@every_case
async def test_channels_are_told_apart(case: SaverCase, storage: Storage) -> None:
    """`log` has its value when `late` loses a write; each begins where it begins."""
    async with case.aopen(storage) as raw:
        life = Life(case)
        await life.run(_wrapped(raw), "say full", "ask-both lost", "idle")
        life.delta = ("log", "late")
        for what in ("say one", "both two", "say three"):
            await life.run(_wrapped(raw), what)
            await _right(life, _wrapped(raw))
            await _right(life, _wrapped(raw, max_bytes=0))


@every_case
async def test_a_thread_that_turned_before_the_wrapper_came_is_right(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        life = Life(case)
        await life.run(raw, "ask lost", "idle")
        life.delta = ("log", "late")
        await life.run(raw, "say one")
        for saver in (_wrapped(raw), _wrapped(raw, max_bytes=0)):
            assert (await _right(life, saver))[0] == [["one"], []]


@pytest.mark.parametrize("durability", ["async", "exit"])
@every_case
async def test_durability_makes_no_difference(
    case: SaverCase, storage: Storage, durability: str
) -> None:
    async with case.aopen(storage) as raw:
        life = Life(case, durability=durability)
        await life.run(_wrapped(raw), "ask lost", "idle")
        life.delta = ("log", "late")
        for what in ("say one", "idle", "both two", "say three"):
            await life.run(_wrapped(raw), what)
            await _right(life, _wrapped(raw))
            await _right(life, _wrapped(raw, max_bytes=0))


@every_case
async def test_snapshots_come_in_their_time(case: SaverCase, storage: Storage) -> None:
    async with case.aopen(storage) as raw:
        life = Life(case, frequency=2)
        warm = _wrapped(raw)
        await life.run(warm, "ask lost", "idle")
        life.delta = ("log", "late")
        await life.run(warm, *(f"both {number}" for number in range(5)))
        assert await _right(life, warm) == await _right(life, _wrapped(raw))


@every_case
async def test_a_subgraph_with_a_memory_of_its_own_is_right(
    case: SaverCase, storage: Storage
) -> None:
    if fixes.status(["subgraph-hydration"])[0].presence == "present":
        pytest.skip("this release reads a subgraph's delta channels empty")
    async with case.aopen(storage) as raw:
        life = Life(case, inside=True)
        await life.run(_wrapped(raw), "ask lost", "idle")
        life.delta = ("log", "late")
        await life.run(_wrapped(raw), "say one", "both two")
        for saver in (_wrapped(raw), _wrapped(raw, max_bytes=0)):
            assert (await _right(life, saver))[0] == [["one", "two"], ["two"]]


@every_case
async def test_a_fork_of_full_mode_begins_where_it_begins(
    case: SaverCase, storage: Storage
) -> None:
    """One branch has a value and the other none; the thread turns delta on the second."""
    async with case.aopen(storage) as raw:
        life = Life(case)
        await life.run(_wrapped(raw), "ask lost", "idle")
        base = await life.call(raw, "get_state", life.config)
        await life.run(_wrapped(raw), "say other")
        await life.call(_wrapped(raw), "invoke", {"do": "idle"}, base.config)
        life.delta = ("log", "late")
        await life.run(_wrapped(raw), "say one", "say two")
        for saver in (_wrapped(raw), _wrapped(raw, max_bytes=0)):
            assert (await _right(life, saver))[0] == [["one", "two"], []]


@every_case
async def test_without_the_fix_the_wrapper_shows_what_the_saver_does(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        life = Life(case)
        await life.run(raw, "ask lost", "idle")
        life.delta = ("log", "late")
        await life.run(raw, "say one")
        plain = CachedHistorySaver(raw, cache=MemoryHistoryCache(), fixes="off")
        assert await life.states(plain) == await life.states(raw)
        assert await life.states(plain) == await life.states(raw)
        assert (await life.states(plain))[0]["log"] == ["lost", "one"]


@every_case
async def test_wrappers_with_and_without_the_fix_share_a_cache(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as raw:
        life = Life(case)
        await life.run(raw, "ask lost", "idle")
        life.delta = ("log", "late")
        await life.run(raw, "say one")
        cache = MemoryHistoryCache()
        both = [
            CachedHistorySaver(raw, cache=cache, key_prefix="one", fixes=fixes)
            for fixes in ("auto", "off", "auto")
        ]
        shown = [(await life.states(saver))[0]["log"] for saver in both]
        assert shown == [["one"], ["lost", "one"], ["one"]]


@every_case
async def test_a_delta_thread_is_not_asked_about(
    case: SaverCase, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counters of a checkpoint tell, so nothing is looked at beside the saver's own walk."""
    looked: list[Any] = []

    def noted(*asked: Any) -> Any:
        looked.append(asked)
        return real(*asked)

    real = walker.overran
    monkeypatch.setattr(walker, "overran", noted)
    async with case.aopen(storage) as raw:
        life = Life(case, delta=("log",))
        await life.run(_wrapped(raw), "say one", "ask lost", "idle", "say two")
        looked.clear()
        state = await life.call(_wrapped(raw), "get_state", life.config)
        assert "one" in state.values["log"]
        older = await life.call(_wrapped(raw), "get_state", state.parent_config)
        assert "one" in older.values["log"]
        assert looked == []


@every_case
async def test_workers_that_share_what_they_know_are_right(
    case: SaverCase, storage: Storage, redis_database: str
) -> None:
    """What one of them put is read by the other from what was shared, and from rows above that."""
    async with case.aopen(storage) as raw:
        life = Life(case)
        await life.run(raw, "ask lost", "idle")
        life.delta = ("log", "late")
        async with open_cache(redis_database) as one, open_cache(redis_database) as other:
            first, second = (
                CachedHistorySaver(raw, cache=cache, key_prefix="one") for cache in (one, other)
            )
            for what in ("say one", "both two", "idle", "say three"):
                await life.run(first, what)
                await _right(life, second)
            assert second.cache_info().shared > 0
