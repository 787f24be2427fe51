"""An opened saver with all the faces it has, for tests that are themselves synchronous."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from support.savers import Saver, SaverCase, Storage

__all__ = ["BaseWalk", "Face", "Host", "Loop"]

Face = Literal["sync", "async"]
T = TypeVar("T")
_PATIENCE = 120.0


class Loop:
    """An event loop on a thread of its own, so that a sync face can be called beside it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_PATIENCE)

    def close(self) -> None:
        """End the thread."""
        gc.collect()  # listings that LangGraph left half-way end on this loop, or on none
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()


class Host:
    """One saver case on one storage; `inner` and `other` are two savers on the same data."""

    def __init__(self, case: SaverCase, storage: Storage) -> None:
        self.case = case
        self._storage = storage
        self._stack = ExitStack()
        self._astack = AsyncExitStack()
        self.loop = Loop()

    @property
    def faces(self) -> tuple[Face, ...]:
        """The faces that work; a saver on a loop serves sync callers of other threads too."""
        return ("sync",) if self.case.kind == "sync" else ("sync", "async")

    @property
    def on_a_server(self) -> bool:
        """Whether each call is a round trip."""
        return "postgres" in self.case.name

    def __enter__(self) -> Self:
        """Open both savers."""
        self.inner, self.other = self._open(), self._open()
        return self

    def _open(self) -> Saver:
        if self.case.kind == "async":
            opened = self._astack.enter_async_context(self.case.aopen(self._storage))
            return self.loop.run(opened)
        return self._stack.enter_context(self.case.open(self._storage))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close them."""
        self.loop.run(self._astack.aclose())
        self._stack.close()
        self.loop.close()

    def call(self, face: Face, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call `target.method`, or `target.amethod` on the loop."""
        if face == "sync":
            return getattr(target, method)(*args, **kwargs)
        return self.loop.run(getattr(target, f"a{method}")(*args, **kwargs))

    def collect(self, face: Face, target: Any, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """All items of an iterator that `method`, or `amethod`, returns."""
        if face == "sync":
            return list(getattr(target, method)(*args, **kwargs))

        async def gather() -> list[Any]:
            return [item async for item in getattr(target, f"a{method}")(*args, **kwargs)]

        return self.loop.run(gather())


class BaseWalk:
    """The base class's histories over the rows of `reader`."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def get_delta_channel_history(self, **asked: Any) -> Any:
        """On the sync face."""
        return BaseCheckpointSaver.get_delta_channel_history(self._reader, **asked)

    async def aget_delta_channel_history(self, **asked: Any) -> Any:
        """On the async face."""
        return await BaseCheckpointSaver.aget_delta_channel_history(self._reader, **asked)
