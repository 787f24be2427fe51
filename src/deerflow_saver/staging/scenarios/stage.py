"""The stage: a raw saver, called on the face that it has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any
from uuid import uuid4

__all__ = ["Stage"]

Config = dict[str, Any]


class Stage:
    """One saver for all scenarios; each takes threads of its own.

    Args:
        name: the saver's short name, see `scenario.EVERY`.
        saver: set up and open.
        loop: where the saver lives, if it has only an async face.
        address: of its database; None in memory.

    """

    def __init__(
        self,
        name: str,
        saver: Any,
        loop: asyncio.AbstractEventLoop | None = None,
        address: str | None = None,
    ) -> None:
        self.name = name
        self.saver = saver
        self.address = address
        self._loop = loop

    @property
    def face(self) -> str:
        """Prefix of the methods that work: empty or `a`."""
        return "a" if self._loop else ""

    def ask(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a graph or saver; what it yields is given as a list."""
        answer = getattr(target, self.face + method)(*args, **kwargs)
        if isinstance(answer, AsyncIterator):
            return self.wait(_drained(answer))
        if self._loop:
            return self.wait(answer)
        return list(answer) if isinstance(answer, Iterator) else answer

    def wait(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """Await something on the saver's loop, from outside or from a thread beside it."""
        if self._loop is None:
            return asyncio.run(answer)
        if self._loop.is_running():
            return asyncio.run_coroutine_threadsafe(answer, self._loop).result()
        return self._loop.run_until_complete(answer)

    def thread(self) -> Config:
        """The config of a new thread."""
        return {"configurable": {"thread_id": uuid4().hex, "checkpoint_ns": ""}}

    def compile(self, builder: Any, **options: Any) -> Any:
        """A graph on this saver."""
        return builder.compile(checkpointer=self.saver, **options)

    def run(self, graph: Any, given: Any, config: Config, durability: str = "async") -> Any:
        """Run a graph; its result."""
        return self.ask(graph, "invoke", given, config, durability=durability)

    def head(self, graph: Any, config: Config) -> Config:
        """The config of the newest checkpoint."""
        head: Config = self.ask(graph, "get_state", config).config
        return head

    def values(self, graph: Any, config: Config) -> Any:
        """The state at a checkpoint, or at the newest."""
        return self.ask(graph, "get_state", config).values

    def history(self, graph: Any, config: Config) -> list[Any]:
        """Every stored state, newest first."""
        return list(self.ask(graph, "get_state_history", config))

    def every(self, graph: Any, config: Config) -> dict[str, Any]:
        """The values of every stored checkpoint, newest first."""
        states = self.history(graph, config)
        return {f"cp{number}": state.values for number, state in enumerate(states)}

    def update(self, graph: Any, config: Config, values: Any, as_node: str | None = None) -> Config:
        """`update_state`; the new checkpoint's config."""
        found: Config = self.ask(graph, "update_state", config, values, as_node)
        return found

    def put(self, config: Config, checkpoint: Any, metadata: Any, versions: Any) -> Config:
        """Store a checkpoint; its config."""
        stored: Config = self.ask(self.saver, "put", config, checkpoint, metadata, versions)
        return stored

    def put_writes(self, config: Config, writes: Any, task_id: str) -> None:
        """Store a task's writes."""
        self.ask(self.saver, "put_writes", config, writes, task_id)

    def walk(self, config: Config, channels: list[str]) -> Any:
        """The delta histories at a checkpoint."""
        return self.ask(self.saver, "get_delta_channel_history", config=config, channels=channels)

    @contextmanager
    def replaced(self, method: str, make: Callable[[Any], Any]) -> Iterator[None]:
        """Another method in the saver's place: `make` is given the original, of the same face."""
        name = self.face + method
        setattr(self.saver, name, make(getattr(self.saver, name)))
        try:
            yield
        finally:
            delattr(self.saver, name)

    def beside(self, call: Callable[[], Any]) -> None:
        """Make a call as another request would: in a thread and a context of its own."""
        thread = threading.Thread(target=Context().run, args=(call,))
        thread.start()
        thread.join()


async def _drained(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
