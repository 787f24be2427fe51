"""What the walk and the listing of a saver class do, seen once per class in memory."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from deerflow_saver.walks.scenes import LIMIT, Scene, Write, holds_lock, replay

__all__ = [
    "PAGE", "Habits", "Sight", "ahabits_of", "akeeps_lock", "defining", "few_variables_fail",
    "habits_of", "installed", "keeps_lock", "loses_late_parents", "loses_order",
    "loses_second_page", "skips_none_seed", "skips_plain_seed",
]  # fmt: skip

_CLASSES = {
    "memory": (("langgraph.checkpoint.memory", "InMemorySaver"),),
    "sqlite": (
        ("langgraph.checkpoint.sqlite", "SqliteSaver"),
        ("langgraph.checkpoint.sqlite.aio", "AsyncSqliteSaver"),
    ),
    "postgres": (
        ("langgraph.checkpoint.postgres", "PostgresSaver"),
        ("langgraph.checkpoint.postgres.aio", "AsyncPostgresSaver"),
    ),
}
PAGE = 1024
"""LangGraph's Postgres savers page checkpoints by so many rows (`_DELTA_PAGE_SIZE`)."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a scene should read and what it read."""

    wrong: bool
    expected: Any
    read: Any


def _seen(cls: type, scene: Scene, expected: list[str]) -> Sight:
    read = replay(cls, scene)
    return Sight(read != expected, expected, read)


def loses_late_parents(cls: type) -> Sight:
    """Whether a parent whose id sorts after its child's is lost: the line 3, 1, 2."""
    scene = Scene(
        [("3", None), ("1", "3"), ("2", "1")], [Write("3", "first"), Write("1", "second")], "2"
    )
    return _seen(cls, scene, ["first", "second"])


def loses_second_page(cls: type) -> Sight:
    """Whether a target that more than a page of checkpoints came after reads empty."""
    ids = [f"{number:05}" for number in range(PAGE + 4)]
    line = [(cid, ids[number - 1] if number else None) for number, cid in enumerate(ids)]
    return _seen(cls, Scene(line, [Write(cid, cid) for cid in ids[:2]], ids[2]), ids[:2])


def skips_plain_seed(cls: type) -> Sight:
    """Whether a plain value, stored while the channel was an ordinary one, is walked past."""
    scene = Scene(
        [("1", None), ("2", "1"), ("3", "2")],
        [Write("1", "before"), Write("2", "after")],
        "3",
        seed="2",
    )
    return _seen(cls, scene, ["seed", "after"])


def skips_none_seed(cls: type) -> Sight:
    """Whether a None, stored like that, is walked past to an older value.

    Where it ends the walk without being told as the seed, a reload gives the same.
    """
    scene = Scene(
        [("1", None), ("2", "1"), ("3", "2")], [Write("2", "after")], "3", seed="1", none="2"
    )
    read = replay(cls, scene)
    return Sight("seed" in read, [None, "after"], read)


def loses_order(cls: type) -> Sight:
    """Whether parallel tasks' writes come in the order of their ids instead of their paths."""
    scene = Scene(
        [("1", None), ("2", "1")], [Write("1", "a", "~pull, 2"), Write("1", "b", "~pull, 1")], "2"
    )
    return _seen(cls, scene, ["b", "a"])


def few_variables_fail(cls: type) -> Sight:
    """Whether a history longer than the bound variables allow raises."""
    ids = [f"{number:02}" for number in range(LIMIT + 5)]
    line = [(cid, ids[number - 1] if number else None) for number, cid in enumerate(ids)]
    scene = Scene(line, [Write(ids[0], "first")], ids[-1], few_variables=True)
    try:
        return _seen(cls, scene, ["first"])
    except Exception as error:  # noqa: BLE001 - which one is the driver's choice
        return Sight(wrong=True, expected=["first"], read=error)


@dataclass(frozen=True, slots=True)
class Habits:
    """What must be looked after at a walk of this class; a class that cannot be probed has all."""

    late_parents: bool
    second_page: bool
    plain_seed: bool
    none_seed: bool

    def only(self, allowed: Collection[str]) -> Habits:
        """The habits whose defects are answered."""
        return Habits(
            late_parents=self.late_parents and "parent-sorts-after-child" in allowed,
            second_page=self.second_page and "postgres-first-page" in allowed,
            plain_seed=self.plain_seed and "postgres-plain-seed" in allowed,
            none_seed=self.none_seed and "postgres-none-seed" in allowed,
        )


def _suspects(look: Callable[[type], Sight], cls: type) -> bool:
    try:
        return look(cls).wrong
    except Exception:  # noqa: BLE001 - a release that cannot be probed is not trusted
        return True


_habits: dict[type, Habits] = {}
_lock_kept: dict[type, bool] = {}


def habits_of(cls: type) -> Habits:
    """The habits of one of LangGraph's SQL saver classes; probed the first time."""
    known = _habits.get(cls)
    if known is not None:
        return known
    postgres = "postgres" in cls.__module__
    found = Habits(
        late_parents=_suspects(loses_late_parents, cls),
        second_page=postgres and _suspects(loses_second_page, cls),
        plain_seed=postgres and _suspects(skips_plain_seed, cls),
        none_seed=postgres and _suspects(skips_none_seed, cls),
    )
    return _habits.setdefault(cls, found)


async def ahabits_of(cls: type) -> Habits:
    """`habits_of` without holding up the loop."""
    known = _habits.get(cls)
    return await asyncio.to_thread(habits_of, cls) if known is None else known


def keeps_lock(cls: type) -> bool:
    """`holds_lock`, and True where that cannot be seen: paging is right in any case."""
    if cls not in _lock_kept:
        try:
            _lock_kept[cls] = holds_lock(cls)
        except Exception:  # noqa: BLE001 - as above
            _lock_kept[cls] = True
    return _lock_kept[cls]


async def akeeps_lock(cls: type) -> bool:
    """`keeps_lock` without holding up the loop."""
    known = _lock_kept.get(cls)
    return await asyncio.to_thread(keeps_lock, cls) if known is None else known


def defining(cls: type, method: str) -> type:
    """The class that `cls` has `method` from."""
    return next(base for base in cls.__mro__ if method in vars(base))


def installed(*families: str) -> list[type]:
    """LangGraph's saver classes, as far as they are installed.

    Raises:
        ImportError: none is.

    """
    found: list[type] = []
    missing: ImportError | None = None
    for module, name in (pair for family in families for pair in _CLASSES[family]):
        try:
            found.append(getattr(importlib.import_module(module), name))
        except ImportError as error:
            missing = error
    if not found:
        raise missing or ImportError(", ".join(families))
    return found
