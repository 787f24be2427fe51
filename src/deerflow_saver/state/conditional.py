"""Writes that depend on what was read, for any saver: the guard's rule, for these calls alone.

What is read and then written through a `ConditionalSaver` is stored only if the head is still
the one that was read, with the writes that were on it. A `CachedHistorySaver` that refuses does
that by itself; a raw saver, or one whose guard only observes or is off, gets it here.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection
from functools import partial
from typing import Any

import wrapt

from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver._probe import traits_of
from deerflow_saver._taping import run
from deerflow_saver.events import GuardEvent
from deerflow_saver.guard.driver import Guarded
from deerflow_saver.guard.guard import Guard
from deerflow_saver.guard.locks import locks_of
from deerflow_saver.guard.making import guard_of
from deerflow_saver.guard.plans import guarded_put, guarded_read, guarded_writes
from deerflow_saver.guard.policy import Policy
from deerflow_saver.guard.state import GuardState

__all__ = ["ConditionalSaver", "conditional"]


def conditional(saver: Any, policy: Policy = "refuse") -> Any:
    """`saver` such that what is written depends on what was read.

    A wrapper's cache need not see these writes: to it they are another process's.

    Args:
        saver: a raw saver or a wrapper.
        policy: `"refuse"` for delta threads only, `"refuse-all"` for full ones as well.

    """
    guard = getattr(saver, "guard", None)
    if isinstance(guard, Guard) and guard.policy in {policy, "refuse-all"}:
        return saver
    return ConditionalSaver(saver.inner if hasattr(saver, "cache_info") else saver, policy)


def _unreported(_event: GuardEvent) -> None:
    """The error tells its caller."""


class ConditionalSaver(wrapt.BaseObjectProxy[Any]):
    """A saver that refuses a write that does not continue what was read."""

    _self_guarded: Guarded
    _self_policy: Policy

    def __init__(self, saver: Any, policy: Policy = "refuse") -> None:
        """Guard the calls made through this object."""
        super().__init__(saver)
        self._self_policy = policy
        state = GuardState(locks_of(saver))
        storage = traits_of(saver).kind == "storage"
        guard = guard_of(saver, state, _unreported, policy, storage=storage, strict=False)
        self._self_guarded = Guarded(guard, ({"inner": partial(run, saver)},) * 2)

    def __copy__(self) -> ConditionalSaver:
        """LangGraph sets attributes on copies."""
        return ConditionalSaver(copy.copy(self.__wrapped__), self._self_policy)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> ConditionalSaver:
        """The clone with that msgpack allowlist, as conditional."""
        allowing = self.__wrapped__.with_allowlist(extra_allowlist)
        return ConditionalSaver(allowing, self._self_policy)

    def get_tuple(self, *args: Any, **kwargs: Any) -> Any:
        """The row; it is remembered what the caller has seen."""
        guarded = self._self_guarded
        plan = guarded_read(guarded.guard, args, kwargs, _ask("get_tuple", args, kwargs))
        return drive(plan, guarded.sync)

    async def aget_tuple(self, *args: Any, **kwargs: Any) -> Any:
        """The row; it is remembered what the caller has seen."""
        guarded = self._self_guarded
        plan = guarded_read(guarded.guard, args, kwargs, _ask("aget_tuple", args, kwargs))
        return await adrive(plan, guarded.asynchronous)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Store the checkpoint if it continues the line."""
        if self._self_guarded.guard.bridged:
            return self._self_across(self.aput(*args, **kwargs))
        return drive(self._self_put("put", args, kwargs), self._self_guarded.sync)

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        """Store the checkpoint if it continues the line."""
        plan = self._self_put("aput", args, kwargs)
        return await adrive(plan, self._self_guarded.asynchronous)

    def put_writes(self, *args: Any, **kwargs: Any) -> Any:
        """Store the writes unless another branch would read them."""
        if self._self_guarded.guard.bridged:
            return self._self_across(self.aput_writes(*args, **kwargs))
        return drive(self._self_writes("put_writes", args, kwargs), self._self_guarded.sync)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> Any:
        """Store the writes unless another branch would read them."""
        plan = self._self_writes("aput_writes", args, kwargs)
        return await adrive(plan, self._self_guarded.asynchronous)

    def _self_across(self, call: Any) -> Any:
        """The fence of a saver that belongs to a loop is there."""
        return asyncio.run_coroutine_threadsafe(call, self.__wrapped__.loop).result()

    def _self_put(self, name: str, args: Any, kwargs: Any) -> Plan[Any]:
        # What the guard saw is for a cache to learn from: there is none here
        return guarded_put(
            self._self_guarded.guard, (name, args, kwargs), lambda *given, **_: _ask(name, *given)
        )

    def _self_writes(self, name: str, args: Any, kwargs: Any) -> Plan[Any]:
        return guarded_writes(
            self._self_guarded.guard, (name, args, kwargs), lambda *given: _ask(name, *given)
        )


def _ask(name: str, args: Any, kwargs: Any) -> Plan[Any]:
    return (yield "inner", (name, args, kwargs))
