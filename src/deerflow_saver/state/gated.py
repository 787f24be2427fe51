"""The saver as a graph in full mode sees it: no row of a delta thread comes through."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Any, cast

import wrapt

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.channel_mode.gate import async_calls, judge_row, sync_calls

__all__ = ["GatedSaver"]

ChannelsOf = Callable[[str], Mapping[str, Any] | None]
"""The channel table of a namespace's graph."""


class GatedSaver(wrapt.BaseObjectProxy[Any]):
    """A saver whose reads raise on a delta thread, before a graph makes values of them.

    A materialised snapshot no longer tells all that a row does, and reading the row again
    would cost a second fetch.
    """

    _self_channels_of: ChannelsOf

    def __init__(self, saver: Any, channels_of: ChannelsOf) -> None:
        """Gate `saver`."""
        super().__init__(saver)
        self._self_channels_of = channels_of

    def __copy__(self) -> GatedSaver:
        """LangGraph sets attributes on copies."""
        return GatedSaver(copy.copy(self.__wrapped__), self._self_channels_of)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> GatedSaver:
        """The gated clone with that msgpack allowlist."""
        return GatedSaver(self.__wrapped__.with_allowlist(extra_allowlist), self._self_channels_of)

    def _self_judge(self, row: Any) -> Plan[None]:
        checkpoint_ns = configurable(row.config).get("checkpoint_ns") or "" if row else ""
        return judge_row(row, self._self_channels_of(checkpoint_ns))

    def get_tuple(self, config: Any) -> Any:
        """The row, unless it belongs to a delta thread."""
        row = self.__wrapped__.get_tuple(config)
        drive(self._self_judge(row), sync_calls(self.__wrapped__))
        return row

    async def aget_tuple(self, config: Any) -> Any:
        """The row, unless it belongs to a delta thread."""
        row = await self.__wrapped__.aget_tuple(config)
        await adrive(self._self_judge(row), async_calls(self.__wrapped__))
        return row

    def list(self, config: Any, **selection: Any) -> Iterator[Any]:
        """The rows; all are fetched first, as a saver may hold its lock while it lists."""
        rows = list(cast("Any", self.__wrapped__).list(config, **selection))
        for row in rows:
            drive(self._self_judge(row), sync_calls(self.__wrapped__))
            yield row

    async def alist(self, config: Any, **selection: Any) -> AsyncIterator[Any]:
        """The rows; all are fetched first."""
        rows = [row async for row in self.__wrapped__.alist(config, **selection)]
        for row in rows:
            await adrive(self._self_judge(row), async_calls(self.__wrapped__))
            yield row
