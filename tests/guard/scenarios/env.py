"""What a scenario does its work with: one body for both faces, every channel kind and durability.

A body is a coroutine function. On the async face it runs on a loop. On the sync face every
helper blocks instead of awaiting, so the coroutine never suspends and needs no loop: `finish`
runs it by sending once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from langchain_core.messages import BaseMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Interrupt, StateSnapshot, StateUpdate

from guard.scenarios.kinds import Kind, state
from guard.scenarios.meeting import Meeting

__all__ = ["Env", "Face", "Refusals", "finish", "plain"]

Durability = Literal["sync", "async", "exit"]
Face = Literal["invoke", "ainvoke"]
Thunk = Callable[[], Coroutine[Any, Any, Any]]
Node = Callable[..., Any]
T = TypeVar("T")
Refusals = tuple[type[Exception], ...]


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits.

    Raises:
        RuntimeError: it did.

    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    message = "a synchronous scenario must not wait"
    raise RuntimeError(message)


def plain(value: Any) -> Any:
    """`value` without what differs between two equal runs: ids of checkpoints and interrupts."""
    if isinstance(value, BaseMessage):
        calls = [(call["name"], call["args"]) for call in getattr(value, "tool_calls", ())]
        return (value.type, value.content, calls)
    if isinstance(value, Interrupt):
        return ("interrupt", plain(value.value))
    if isinstance(value, Mapping):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, Interrupt) for item in value):
            return sorted(map(plain, value))  # they come in the order their tasks stopped
        return [plain(item) for item in value]
    return value


class Env:
    """A saver, a channel kind, a durability and a face."""

    def __init__(self, saver: Any, kind: Kind, durability: Durability, face: Face) -> None:
        self.saver = saver
        self.kind = kind
        self.durability = durability
        self.face = face
        self.refusals: Refusals = ()
        """What a guard raises; nothing without one."""
        self.refused: list[Exception] = []
        """Refusals that `together` caught."""
        self.returned = 0
        """How many of the runs in `together` were not refused."""
        self.trace: list[Any] = []
        """What every run returned."""
        self.turns: list[str] = []
        """Inputs of accepted runs that met others."""
        self.threads: dict[str, tuple[Any, Any, Any]] = {}
        """Per thread the graph, config and input of its first run."""
        self.on_fork: Callable[[], None] = lambda: None
        """Called just before a scenario forks the thread."""
        self.on_meeting: Callable[[], None] = lambda: None
        """Called just before runs meet."""

    # -- graphs -------------------------------------------------------------------------------

    @property
    def sync(self) -> bool:
        """Whether this is the sync face."""
        return self.face == "invoke"

    def builder(self, frequency: int = 1000, kind: Kind | None = None) -> StateGraph[Any]:
        """A graph to build, with the kind's channels."""
        return StateGraph(state(kind or self.kind, frequency))

    def chain(
        self,
        *nodes: tuple[str, Node],
        kind: Kind | None = None,
        frequency: int = 1000,
        **options: Any,
    ) -> Any:
        """A compiled graph whose nodes run one after the other."""
        builder = self.builder(frequency, kind)
        names = [name for name, _ in nodes]
        for name, node in nodes:
            builder.add_node(name, node)
        for before, after in zip([START, *names], [*names, END], strict=True):
            builder.add_edge(before, after)
        return self.compile(builder, **options)

    def fan(self, *nodes: tuple[str, Node], then: Node | None = None, **options: Any) -> Any:
        """A compiled graph whose nodes run side by side, and then another one."""
        builder = self.builder()
        for name, node in nodes:
            builder.add_node(name, node)
            builder.add_edge(START, name)
        if then is not None:
            builder.add_node("then", then)
        for name, _ in nodes:
            builder.add_edge(name, "then" if then is not None else END)
        return self.compile(builder, **options)

    def compile(self, builder: StateGraph[Any], **options: Any) -> Any:
        """Compile with the saver, or with the `checkpointer` in the options."""
        return builder.compile(**{"checkpointer": self.saver, **options})

    def node(self, body: Callable[..., Coroutine[Any, Any, Any]]) -> Node:
        """A node that calls graphs: a coroutine function, or on the sync face a plain one."""
        if not self.sync:
            return body

        @functools.wraps(body)
        def call(*args: Any, **kwargs: Any) -> Any:
            return finish(body(*args, **kwargs))

        return call

    def thread(self, name: str = "thread", **more: Any) -> Any:
        """The config of a thread."""
        return {"configurable": {"thread_id": name, **more}}

    # -- runs ---------------------------------------------------------------------------------

    async def call(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call `target.method`, or await `target.amethod`."""
        if self.sync:
            return getattr(target, method)(*args, **kwargs)
        return await getattr(target, f"a{method}")(*args, **kwargs)

    async def invoke(self, graph: Any, value: Any, config: Any, **options: Any) -> Any:
        """Run a graph."""
        self._remember(graph, value, config)
        options = {"durability": self.durability, **options}
        result = await self.call(graph, "invoke", value, config, **options)
        self.trace.append(plain(result))
        return result

    async def nested(self, graph: Any, value: Any, config: Any = None) -> Any:
        """Run a graph from inside a node."""
        return await self.call(graph, "invoke", value, config)

    async def stream(
        self,
        graph: Any,
        value: Any,
        config: Any,
        *,
        leave_after: int = 0,
        on_chunk: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> list[Any]:
        """Stream a run; close the stream after `leave_after` chunks if that is not zero."""
        self._remember(graph, value, config)
        options = {"durability": self.durability, **options}
        chunks: list[Any] = []
        if self.sync:
            with contextlib.closing(graph.stream(value, config, **options)) as parts:
                for part in parts:
                    chunks.append(part)
                    on_chunk()
                    if len(chunks) == leave_after:
                        break
        else:
            async with contextlib.aclosing(graph.astream(value, config, **options)) as parts:
                async for part in parts:
                    chunks.append(part)
                    on_chunk()
                    if len(chunks) == leave_after:
                        break
        self.trace.append(len(chunks))
        return chunks

    def _remember(self, graph: Any, value: Any, config: Any) -> None:
        name = config["configurable"]["thread_id"]
        first = self.threads.get(name)
        known = first is not None
        # The newest graph reads a thread; the first input starts another turn of it
        again = first[2] if known and first is not None else value
        self.threads[name] = (graph, self.thread(name), again)

    async def update(self, graph: Any, config: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        """`update_state`."""
        self._remember(graph, values, config)
        return await self.call(graph, "update_state", config, values, *args, **kwargs)

    async def bulk(self, graph: Any, config: Any, *supersteps: Iterable[StateUpdate]) -> Any:
        """`bulk_update_state`."""
        self._remember(graph, None, config)
        steps = [list(step) for step in supersteps]
        return await self.call(graph, "bulk_update_state", config, steps)

    async def raises(self, expected: type[Exception], thunk: Thunk) -> None:
        """Run what fails on purpose; a refusal is no such failure."""
        try:
            await thunk()
        except self.refusals:
            raise
        except expected as error:
            self.trace.append(type(error).__name__)
        else:
            message = f"{expected.__name__} was not raised"
            raise AssertionError(message)

    # -- reads --------------------------------------------------------------------------------

    async def state(self, graph: Any, config: Any, **options: Any) -> StateSnapshot:
        """`get_state`."""
        snapshot: StateSnapshot = await self.call(graph, "get_state", config, **options)
        return snapshot

    async def head(self, graph: Any, config: Any) -> Any:
        """The config of the newest checkpoint, with its id."""
        return (await self.state(graph, config)).config

    async def history(self, graph: Any, config: Any) -> list[StateSnapshot]:
        """`get_state_history`, newest first."""
        if self.sync:
            return list(graph.get_state_history(config))
        return [snapshot async for snapshot in graph.aget_state_history(config)]

    async def values(self) -> dict[str, Any]:
        """What every thread holds at its head, and what it would do next."""
        found = {}
        for name, (graph, config, _) in self.threads.items():
            snapshot = await self.state(graph, config)
            found[name] = plain([snapshot.values, snapshot.next, snapshot.interrupts])
        return found

    async def again(self) -> None:
        """Another turn of the first thread, as a user does who was refused."""
        graph, config, value = next(iter(self.threads.values()))
        await self.invoke(graph, value, config)

    # -- at once ------------------------------------------------------------------------------

    async def together(self, meetings: Sequence[Meeting], *runs: Thunk) -> list[Any]:
        """Run several at once; what is refused is noted and gives None.

        Raises:
            BaseException: the first error that is no refusal.

        """
        self.on_meeting()

        async def one(run: Thunk) -> Any:
            try:
                result = await run()
                self.returned += 1
            except self.refusals as error:
                self.refused.append(error)
                return None
            else:
                return result
            finally:
                for meeting in meetings:
                    meeting.ended()

        if not self.sync:
            return await asyncio.gather(*(one(run) for run in runs))
        with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
            return [f.result() for f in [pool.submit(finish, one(run)) for run in runs]]

    async def attend(self, meeting: Meeting) -> None:
        """Attend a meeting outside a node, without holding up the loop."""
        if self.sync:
            meeting.attend()
        else:
            await asyncio.to_thread(meeting.attend)

    async def cancelled(self, graph: Any, value: Any, config: Any, begun: Awaitable[Any]) -> None:
        """Start a run on the loop and cancel it once `begun` is; a refusal of it is noted."""
        self._remember(graph, value, config)
        run = asyncio.ensure_future(graph.ainvoke(value, config, durability=self.durability))
        await begun
        run.cancel()
        try:
            await run
        except asyncio.CancelledError:
            return
        except self.refusals as error:
            self.refused.append(error)

    async def settled(self) -> None:
        """Wait for saves that cancelled runs left behind."""
        if not self.sync:
            tasks: Sequence[Any] = list(asyncio.all_tasks() - {asyncio.current_task()})
            await asyncio.gather(*tasks, return_exceptions=True)
