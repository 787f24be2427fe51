"""The inner saver's history and listing, right where its own walk would be wrong.

The plans below request:

===========  =====================  ====================================================
request      argument               answer
===========  =====================  ====================================================
`raw`        channels               the wrapped saver's own history
`base`       channels               the base class's walk over ordered rows, which is right
`row`        config                 the wrapped saver's tuple
`ask`        `Statement`            its rows
`habits`     saver class            `habits_of` it; the first time that takes a moment
===========  =====================  ====================================================
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.walks.asking import aask, ask, family_of, on_own_loop
from deerflow_saver.walks.doubts import doubt_of
from deerflow_saver.walks.habits import ahabits_of, akeeps_lock, defining, habits_of, keeps_lock
from deerflow_saver.walks.pages import Pager, pageable
from deerflow_saver.walks.paths import Paths, RememberedPaths, paths_for

__all__ = ["ANSWERS", "Walker"]

logger = logging.getLogger("deerflow_saver")

ANSWERS = frozenset(
    {
        "parallel-write-order", "postgres-first-page", "parent-sorts-after-child",
        "sqlite-bound-variables", "postgres-plain-seed", "postgres-none-seed", "alist-holds-lock",
    }
)  # fmt: skip
"""Slugs of the defects that are answered here."""

_WALK = (
    "get_tuple", "aget_tuple", "get_delta_channel_history", "aget_delta_channel_history",
)  # fmt: skip

History = Mapping[str, Any]


class Walker:
    """One wrapped saver, and which of its defects are answered for it."""

    def __init__(self, saver: Any, allowed: Collection[str], remembered: RememberedPaths) -> None:
        """Look at where `saver`'s methods come from.

        Args:
            saver: any saver; those that are not LangGraph's own are passed through.
            allowed: slugs of the defects to answer.
            remembered: task paths that passed through the wrapper and its clones.

        """
        self._saver = saver
        self._said = False
        self._allowed = frozenset(allowed) & ANSWERS
        self._family = _walking_family(saver) if self._allowed else None
        self.paths: Paths | None = None
        """Where task paths are found, if the saver does not sort by them and this is answered."""
        if self._family is not None and "parallel-write-order" in self._allowed:
            self.paths = paths_for(self._family, saver, remembered)
        self._listing = "alist-holds-lock" in self._allowed and family_of(
            saver, "list", "alist"
        ) in {"sqlite", "postgres"}

    @property
    def heads_help(self) -> bool:
        """Whether it spares a question to know that a target was its thread's head."""
        return self._family == "postgres"

    # -- histories -------------------------------------------------------------------------

    def walk(self, config: Any, channels: Sequence[str], *, head: frozenset[str] | None) -> History:
        """The history below a checkpoint.

        `head`: if it had the thread's greatest id, its channels that were delta, without a
        snapshot, since the thread's first step.
        """
        saver = self._saver
        if self._family is None or on_own_loop(saver):
            return saver.get_delta_channel_history(config=config, channels=list(channels))  # type: ignore[no-any-return]
        calls: dict[str, Callable[[Any], Any]] = {
            "raw": lambda names: saver.get_delta_channel_history(config=config, channels=names),
            "base": lambda names: BaseCheckpointSaver.get_delta_channel_history(
                _Line(self),  # type: ignore[arg-type] # its get_tuple is all that is used
                config=config,
                channels=names,
            ),
            "ask": lambda statement: ask(saver, statement),
            "habits": habits_of,
        }
        plan = self._walked("get_delta_channel_history", config, list(channels), head=head)
        return drive(plan, calls)

    async def awalk(
        self, config: Any, channels: Sequence[str], *, head: frozenset[str] | None
    ) -> History:
        """`walk` on the async face."""
        saver = self._saver
        if self._family is None:
            return await saver.aget_delta_channel_history(config=config, channels=list(channels))  # type: ignore[no-any-return]
        calls: dict[str, Callable[[Any], Any]] = {
            "raw": lambda names: saver.aget_delta_channel_history(config=config, channels=names),
            "base": lambda names: BaseCheckpointSaver.aget_delta_channel_history(
                _Line(self),  # type: ignore[arg-type] # as above
                config=config,
                channels=names,
            ),
            "ask": lambda statement: aask(saver, statement),
            "habits": ahabits_of,
        }
        plan = self._walked("aget_delta_channel_history", config, list(channels), head=head)
        return await adrive(plan, calls)

    def _walked(
        self, method: str, config: Any, channels: list[str], *, head: frozenset[str] | None
    ) -> Plan[History]:
        names = configurable(config)
        if self.paths is not None and (yield from self.paths.disordered(names, channels)):
            return (yield "base", channels)  # type: ignore[no-any-return]
        history = yield from self._in_parts(channels)
        seedless = [channel for channel in channels if "seed" not in history[channel]]
        nullable = self._nullable(history, channels, head or frozenset())
        if (seedless or nullable) and (
            yield from self._doubtful(method, names, seedless, nullable, head=head is not None)
        ):
            return (yield "base", channels)  # type: ignore[no-any-return]
        return history

    def _nullable(
        self, history: History, channels: list[str], always_delta: frozenset[str]
    ) -> list[str]:
        """Channels that may have been ordinary ones once, where that may have hidden a None."""
        if self._family != "postgres" or "postgres-none-seed" not in self._allowed:
            return []
        return [
            name
            for name in channels
            if name not in always_delta
            and not isinstance(history[name].get("seed"), _DeltaSnapshot)
        ]

    def _in_parts(self, channels: list[str]) -> Plan[History]:
        """The saver's own history, of fewer channels at a time where SQLite binds too much."""
        try:
            return (yield "raw", channels)  # type: ignore[no-any-return]
        except Exception as error:
            if "sqlite-bound-variables" not in self._allowed or not _too_much(error):
                raise
        if len(channels) == 1:
            return (yield "base", channels)  # type: ignore[no-any-return]
        middle = len(channels) // 2
        first = yield from self._in_parts(channels[:middle])
        return {**first, **(yield from self._in_parts(channels[middle:]))}

    def _doubtful(
        self, method: str, names: Any, channels: list[str], nullable: list[str], *, head: bool
    ) -> Plan[bool]:
        """Whether the walk may have lost rows, as far as that is answered here."""
        cls = defining(type(self._saver), method)
        if self._family not in {"sqlite", "postgres"} or cls is BaseCheckpointSaver:
            return False
        habits = (yield "habits", cls).only(self._allowed)
        statement = doubt_of(self._family, habits, names, channels, nullable, head=head)
        if statement is None:
            return False
        try:
            return bool((yield "ask", statement))
        except Exception as error:  # noqa: BLE001 - it cannot be told, and the base walk is right
            self._told_nothing(names, error)
            return True

    def _told_nothing(self, names: Any, error: Exception) -> None:
        """Say why walks are slow: aloud the first time, for it may be so at every read."""
        level, self._said = logging.DEBUG if self._said else logging.WARNING, True
        logger.log(
            level,
            "%s cannot be asked whether its walk loses rows of thread %r, namespace %r (%s: %s); "
            "its rows are walked one by one",
            type(self._saver).__name__,
            names["thread_id"],
            names.get("checkpoint_ns", ""),
            type(error).__name__,
            error,
        )

    # -- rows ------------------------------------------------------------------------------

    def get_tuple(self, config: Any) -> Any:
        """The saver's tuple, its writes by task path."""
        saver = self._saver
        if self.paths is None:
            return saver.get_tuple(config)
        calls = {"row": saver.get_tuple, "ask": lambda statement: ask(saver, statement)}
        return drive(_ordered(self.paths, config), calls)

    async def aget_tuple(self, config: Any) -> Any:
        """`get_tuple` on the async face."""
        saver = self._saver
        if self.paths is None:
            return await saver.aget_tuple(config)
        calls = {"row": saver.aget_tuple, "ask": lambda statement: aask(saver, statement)}
        return await adrive(_ordered(self.paths, config), calls)

    # -- listings ----------------------------------------------------------------------------

    def list(self, args: Any, kwargs: Any) -> Iterator[Any]:
        """The rows of `list`, with the saver's lock free between them."""
        if not self._listing or not pageable(args, kwargs) or not keeps_lock(self._lister("list")):
            yield from self._saver.list(*args, **kwargs)
            return
        pager = Pager(kwargs)
        while not pager.done:
            yield from pager.take(list(self._saver.list(*args, **pager.kwargs)))

    async def alist(self, args: Any, kwargs: Any) -> AsyncIterator[Any]:
        """`list` on the async face."""
        paged = self._listing and pageable(args, kwargs)
        if not paged or not await akeeps_lock(self._lister("alist")):
            async for row in self._saver.alist(*args, **kwargs):
                yield row
            return
        pager = Pager(kwargs)
        while not pager.done:
            page = [row async for row in self._saver.alist(*args, **pager.kwargs)]
            for row in pager.take(page):
                yield row

    def _lister(self, method: str) -> type:
        return defining(type(self._saver), method)


class _Line:
    """The rows of one walk by the base class, which would never end on a loop of parents."""

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
        self._passed = set[str]()

    def get_tuple(self, config: Any) -> Any:
        return self._once(self._walker.get_tuple(config))

    async def aget_tuple(self, config: Any) -> Any:
        return self._once(await self._walker.aget_tuple(config))

    def _once(self, row: Any) -> Any:
        """The row, or None, which ends the walk, if it has passed before."""
        if row is None or row.checkpoint["id"] in self._passed:
            return None
        self._passed.add(row.checkpoint["id"])
        return row


def _walking_family(saver: Any) -> str | None:
    """The family whose walk and rows the saver has, unchanged."""
    return family_of(saver, *_WALK)


def _ordered(paths: Paths, config: Any) -> Plan[Any]:
    row = yield "row", config
    return (yield from paths.ordered(row))


def _too_much(error: Exception) -> bool:
    """SQLite's limits on bound variables and on the terms of a compound SELECT."""
    return type(error).__module__ == "sqlite3" and str(error).startswith("too many ")
