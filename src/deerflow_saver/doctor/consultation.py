"""The three ways to ask the doctor: about this release, about a saver, about a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any

from deerflow_saver._probe import refuse_unsupported
from deerflow_saver.doctor.capabilities import acalls, calls, capabilities, faces
from deerflow_saver.doctor.database import DatabaseReport, inspect
from deerflow_saver.doctor.defects import Setting
from deerflow_saver.doctor.examination import Examination, SaverReport, examined
from deerflow_saver.doctor.opening import CannotOpenError, Opened, opened
from deerflow_saver.doctor.scratch import Scratch, scratch, thread_name
from deerflow_saver.doctor.stack import Consulted, cache_in, consulted, described, kind_of, layers
from deerflow_saver.doctor.urls import Address
from deerflow_saver.errors import UnsupportedSaverError
from deerflow_saver.saver import CachedHistorySaver

__all__ = ["of_database", "of_release", "of_saver"]


def of_release(*, accepted: Collection[str] = ()) -> Examination:
    """What the installed releases have, for a saver in `CachedHistorySaver` as it comes."""
    return examined(Setting(accepted=accepted))


def of_saver(
    name: str, *, scratch_thread: bool = False, accepted: Collection[str] = ()
) -> Examination:
    """Examine the saver of `module:factory`; only its attributes are read without a scratch.

    Raises:
        CannotOpenError: there is no such saver.

    """
    with opened(name) as there:
        stack = layers(there.saver)
        tried = _tried(there, stack) if scratch_thread else None
        report = _report(stack, tried)
        setting = Setting(
            kind_of(stack),
            wrapped=report.cache.answer != "no",
            guarded=report.guard.startswith("refuse"),
            fixes=_fixes(cache_in(stack)),
            accepted=accepted,
        )
        return examined(setting, report)


def of_database(
    where: Address, *, scratch_thread: bool = False, accepted: Collection[str] = ()
) -> Examination:
    """Examine a database, reading only without a scratch; see `database.inspect` for errors.

    Raises:
        CannotOpenError: a scratch thread is asked for, and the tables are not as the installed
            saver wants them.

    """
    database = inspect(where)
    setting = Setting("sqlite" if where.kind == "sqlite" else "postgres", accepted=accepted)
    if not scratch_thread:
        return examined(setting, None, database)
    _refuse_to_migrate(database)
    with ExitStack() as opening:
        saver = opening.enter_context(_saver_of(where))
        runner = opening.enter_context(asyncio.Runner())
        stack = [saver]
        return examined(setting, _report(stack, _tried(Opened(saver, runner), stack)), database)


def _refuse_to_migrate(database: DatabaseReport) -> None:
    """A saver's first write sets up or migrates, which is not what was asked for."""
    if not database.set_up or database.outdated:
        lacks = f"lacks {database.outdated}" if database.set_up else "is not set up"
        message = f"{database.address} {lacks}: call the saver's setup() first"
        raise CannotOpenError(message)


def _saver_of(where: Address) -> Any:
    if where.kind == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver.from_conn_string(where.target)
    from langgraph.checkpoint.postgres import PostgresSaver

    return PostgresSaver.from_conn_string(where.target)


def _report(stack: list[Any], tried: Scratch | None) -> SaverReport:
    cache = cache_in(stack)
    return SaverReport(
        described(stack),
        _consulted(stack, tried),
        "off" if cache is None else _policy(cache),
        capabilities(stack[-1], kind_of(stack), tried.observed if tried else None),
        tried,
        _refusal(stack[-1]),
    )


def _consulted(stack: list[Any], tried: Scratch | None) -> Consulted:
    """From the scratch thread's read if there was one, else from the classes."""
    found = consulted(stack)
    if tried is None or tried.asked is None or found.answer != "unknown":
        return found
    if tried.asked:
        return Consulted("yes", "a read of the scratch thread reached it")
    return Consulted("no", "a read of the scratch thread did not reach it")


def _policy(cache: CachedHistorySaver) -> str:
    return "off" if cache.guard is None else cache.guard.policy


def _fixes(cache: CachedHistorySaver | None) -> Collection[str]:
    return () if cache is None else cache._self_core.shared.fixes  # noqa: SLF001 - our own


def _refusal(saver: Any) -> str | None:
    try:
        refuse_unsupported(saver)
    except UnsupportedSaverError as error:
        return str(error)
    return None


def _tried(there: Opened, stack: list[Any]) -> Scratch:
    """The trial on the saver at the bottom, and one read through the whole stack."""
    bottom = stack[-1]
    outer = there.saver
    tables = (
        {**calls(bottom), "outer_history": calls(outer)["get_delta_channel_history"]},
        {**acalls(bottom), "outer_history": acalls(outer)["get_delta_channel_history"]},
    )
    plan = scratch(thread_name(), _counting(cache_in(stack)))
    found: Scratch = there.play(plan, *tables, asynchronous=faces(bottom).startswith("async"))
    return found


def _counting(cache: CachedHistorySaver | None) -> Callable[[], int | None]:
    """How many histories the cache was asked for, whether it had them or not."""

    def asked() -> int | None:
        if cache is None:
            return None
        info = cache.cache_info()
        return info.hits + info.misses + info.bypasses

    return asked
