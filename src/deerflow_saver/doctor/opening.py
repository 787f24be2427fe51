"""Open the saver a user names: `module:factory`."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from deerflow_saver._plan import Plan, adrive, drive

__all__ = ["CannotOpenError", "Opened", "opened"]


class CannotOpenError(Exception):
    """The saver cannot be had as named; the message says why."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A saver, and the event loop it was opened on."""

    saver: Any
    runner: asyncio.Runner

    def play(
        self,
        plan: Plan[Any],
        calls: Mapping[str, Callable[[Any], Any]],
        acalls: Mapping[str, Callable[[Any], Any]],
        *,
        asynchronous: bool,
    ) -> Any:
        """Run a plan on the saver's sync face, or on its async one in its loop."""
        if asynchronous:
            return self.runner.run(_played(plan, acalls))
        return drive(plan, calls)


async def _played(plan: Plan[Any], calls: Mapping[str, Callable[[Any], Any]]) -> Any:
    return await adrive(plan, calls)


@contextmanager
def opened(name: str) -> Iterator[Opened]:
    """The saver that `module:factory` gives, for as long as the block is open.

    The factory may be a saver, or a function that gives one, or gives a context manager of
    one; it may be async throughout.

    Raises:
        CannotOpenError: it gives none, or fails to close it.

    """
    found = _named(name)
    done = False
    try:
        with ExitStack() as stack:
            runner = stack.enter_context(asyncio.Runner())
            yield Opened(_saver(name, found, stack, runner), runner)
            done = True
    except (Exception, SystemExit) as error:
        if not done:
            raise
        message = f"closing {name} raised {type(error).__name__}: {error}"
        raise CannotOpenError(message) from error


def _saver(name: str, found: Any, stack: ExitStack, runner: asyncio.Runner) -> Any:
    try:
        saver = _made(found, stack, runner)
        is_one = isinstance(saver, BaseCheckpointSaver)
    except (Exception, SystemExit) as error:
        raise CannotOpenError(f"{name} raised {type(error).__name__}: {error}") from error
    if not is_one:
        kind = type(saver).__name__
        hint = "; call it, or name what it gives" if callable(saver) else ""
        raise CannotOpenError(f"{name} gives a {kind}, not a BaseCheckpointSaver{hint}")
    return saver


def _named(name: str) -> Any:
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise CannotOpenError(f"--saver takes module:factory, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise CannotOpenError(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:
        message = f"importing {module_name} raised {type(error).__name__}: {error}"
        raise CannotOpenError(message) from error
    return found


def _made(found: Any, stack: ExitStack, runner: asyncio.Runner) -> Any:
    """Call, await and enter until a saver comes out, each at most once."""
    if not isinstance(found, BaseCheckpointSaver) and callable(found):
        found = _called(found, runner)
    if inspect.isawaitable(found):
        found = runner.run(_awaited(found))
    if isinstance(found, BaseCheckpointSaver):
        return found
    if isinstance(found, AbstractContextManager):
        return stack.enter_context(found)
    if isinstance(found, AbstractAsyncContextManager):
        entered = runner.run(found.__aenter__())
        stack.callback(lambda: runner.run(found.__aexit__(None, None, None)))
        return entered
    return found


def _called(factory: Callable[[], Any], runner: asyncio.Runner) -> Any:
    """Call a factory; inside the loop if it needs a running one, as async savers do."""
    try:
        return factory()
    except RuntimeError as error:
        if "running event loop" not in str(error):
            raise
    return runner.run(_in_loop(factory))


async def _in_loop(factory: Callable[[], Any]) -> Any:
    return factory()


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found
