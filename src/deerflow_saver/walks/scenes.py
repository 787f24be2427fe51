"""Small threads in memory that show what the walk and the listing of a saver class do.

Memory savers are in memory, SQLite savers get a database there, and Postgres savers rows
behind an imitated connection.
Async classes run on a loop of their own in a thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

__all__ = ["LIMIT", "Scene", "Write", "apart", "holds_lock", "parent_kept", "prunes", "replay"]

T = TypeVar("T")
CHANNEL = "log"
LIMIT = 20
"""Bound variables that a SQLite scene allows, where it allows few."""


class Write(NamedTuple):
    """One stored write of the channel."""

    checkpoint_id: str
    task_id: str
    task_path: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """A thread, and the checkpoint whose history is read.

    Attributes:
        line: checkpoints as `(id, parent's id)`, in the order in which they are stored.
        writes: each stores its own task id as the value.
        target: id of the checkpoint.
        seed: checkpoint that stores the plain value `"seed"` for the channel.
        none: checkpoint that stores None for it.
        few_variables: whether SQLite is told to bind `LIMIT` variables at most.

    """

    line: Sequence[tuple[str, str | None]]
    writes: Sequence[Write]
    target: str
    seed: str | None = None
    none: str | None = None
    few_variables: bool = False


def replay(cls: type, scene: Scene) -> list[Any]:
    """What a reload applies: the seed if the walk found one, then the writes' values.

    Raises:
        Exception: whatever the saver raises.

    """
    if cls.__name__.startswith("Async"):
        history = apart(lambda: _aread(cls, scene))
    else:
        with _opened(cls, scene) as saver:
            _store(saver, scene)
            history = saver.get_delta_channel_history(**_asked(scene))
    entry = history[CHANNEL]
    seed = [entry["seed"]] if "seed" in entry else []
    return [*seed, *(value for _, _, value in entry["writes"])]


def holds_lock(cls: type) -> bool:
    """Whether the class keeps its lock while the consumer of a listing is at work."""
    scene = Scene([("1", None), ("2", "1")], [], "2")
    if cls.__name__.startswith("Async"):
        return apart(lambda: _aholds_lock(cls, scene))
    with _opened(cls, scene) as saver:
        _store(saver, scene)
        listing = saver.list(_config())
        try:
            next(listing)
            return bool(saver.lock.locked())
        finally:
            listing.close()


def prunes(cls: type) -> bool:
    """Whether a Postgres class prunes a delta thread that has neither counters nor snapshots."""
    from deerflow_saver.walks.imitation import Imitation, PrunableRows, PruningError

    saver = cls(Imitation(PrunableRows({"1": None, "2": "1"})))
    try:
        saver.prune(["probe"])
    except PruningError:
        return True
    except NotImplementedError:
        return False
    return True


def parent_kept(cls: Any) -> bool:
    """Whether a Postgres class that warns when it is made tells the parent of what it reads."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from deerflow_saver.walks.imitation import Imitation, Rows

    saver = object.__new__(cls)
    saver.serde = JsonPlusSerializer()
    saver.conn, saver.pipe, saver.supports_pipeline = Imitation(Rows({"2": "1"})), None, False
    saver.lock = threading.Lock()
    return saver.get_tuple(_config()).parent_config is not None


async def _aholds_lock(cls: type, scene: Scene) -> bool:
    async with _aopened(cls, scene) as saver:
        await _astore(saver, scene)
        listing = saver.alist(_config())
        try:
            await anext(listing)
            return bool(saver.lock.locked())
        finally:
            await listing.aclose()


async def _aread(cls: type, scene: Scene) -> Any:
    async with _aopened(cls, scene) as saver:
        await _astore(saver, scene)
        return await saver.aget_delta_channel_history(**_asked(scene))


def apart(coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a new loop in a new thread, so that no loop of a caller is entered."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(asyncio.run(coroutine()))
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="deerflow-saver-probe")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


# -- savers in memory -----------------------------------------------------------------------


@contextlib.contextmanager
def _opened(cls: type, scene: Scene) -> Iterator[Any]:
    if "postgres" in cls.__module__:
        from deerflow_saver.walks.imitation import Imitation

        yield cls(Imitation(_rows(scene)))
        return
    if "memory" in cls.__module__:
        yield cls()
        return
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        saver = cls(connection)
        saver.setup()
        if scene.few_variables:
            connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, LIMIT)
        yield saver


@contextlib.asynccontextmanager
async def _aopened(cls: type, scene: Scene) -> AsyncIterator[Any]:
    if "postgres" in cls.__module__:
        from deerflow_saver.walks.imitation import AsyncImitation

        yield cls(AsyncImitation(_rows(scene)))
        return
    import sqlite3

    import aiosqlite

    async with aiosqlite.connect(":memory:") as connection:
        saver = cls(connection)
        await saver.setup()
        if scene.few_variables:
            limit, few = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, LIMIT
            run: Any = connection._execute  # noqa: SLF001 - in the connection's own thread
            await run(connection._conn.setlimit, limit, few)  # noqa: SLF001
        yield saver


def _rows(scene: Scene) -> Any:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from deerflow_saver.walks.imitation import Rows

    serde = JsonPlusSerializer()
    rows = Rows(dict(scene.line), none=scene.none)
    for cid, task_id, path in scene.writes:
        kind, blob = serde.dumps_typed(task_id)
        write = {"type": kind, "blob": blob, "task_id": task_id, "task_path": path, "idx": 0}
        rows.writes.setdefault(cid, []).append(write)
    if scene.seed is not None:
        rows.blobs[scene.seed] = serde.dumps_typed("seed")
    return rows


def _store(saver: Any, scene: Scene) -> None:
    if "postgres" not in type(saver).__module__:
        for method, arguments in _calls(scene):
            getattr(saver, method)(*arguments)


async def _astore(saver: Any, scene: Scene) -> None:
    if "postgres" not in type(saver).__module__:
        for method, arguments in _calls(scene):
            await getattr(saver, f"a{method}")(*arguments)


def _calls(scene: Scene) -> Iterator[tuple[str, tuple[Any, ...]]]:
    from langgraph.checkpoint.base import empty_checkpoint

    for cid, parent in scene.line:
        checkpoint = {**empty_checkpoint(), "id": cid, "channel_versions": {CHANNEL: cid}}
        if cid == scene.seed:
            checkpoint["channel_values"] = {CHANNEL: "seed"}
        elif cid == scene.none:
            checkpoint["channel_values"] = {CHANNEL: None}
        yield "put", (_config(parent), checkpoint, {}, {CHANNEL: cid})
    for cid, task_id, path in scene.writes:
        yield "put_writes", (_config(cid), [(CHANNEL, task_id)], task_id, path)


def _asked(scene: Scene) -> dict[str, Any]:
    return {"config": _config(scene.target), "channels": [CHANNEL]}


def _config(checkpoint_id: str | None = None) -> Any:
    names = {"thread_id": "probe", "checkpoint_ns": ""}
    return {
        "configurable": {**names, **({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}
    }
