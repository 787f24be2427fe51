"""What a saver really does, as far as the cache must know.

A *storage* saver is one of LangGraph's own, whose rules were read in its source and are
held by tests: a config names a checkpoint by thread, namespace and id and nothing else,
and own writes are kept and ordered in a known way. For it, reads of known checkpoints
need no call at all. Any other saver is asked to resolve the target first; then

- if it has no history method of its own, the base class's walk over `get_tuple` *is* its
  history, so rows can be read one by one (`"tuples"`);
- if it has one (a wrapping saver, a saver with its own query), its answers are kept as
  they are and never put together from parts (`"opaque"`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

from deerflow_saver.errors import UnsupportedSaverError
from deerflow_saver.walks.asking import sorts_by_path

__all__ = ["Traits", "refuse_unsupported", "traits_of"]

logger = logging.getLogger("deerflow_saver")

_READS_AND_WRITES = (
    "get_tuple", "aget_tuple", "list", "alist", "put", "aput", "put_writes", "aput_writes",
    "get_delta_channel_history", "aget_delta_channel_history",
)  # fmt: skip
_MEMORY = "langgraph.checkpoint.memory"
_SQLITE = "langgraph.checkpoint.sqlite"
_POSTGRES = "langgraph.checkpoint.postgres"
_BASE = "langgraph.checkpoint.base"
_SHALLOW = frozenset({"ShallowPostgresSaver", "AsyncShallowPostgresSaver"})
_KEEP_NO_PARENTS = {
    **dict.fromkeys(_SHALLOW, "keeps only the newest checkpoint of a thread"),
    "ShallowRedisSaver": "keeps only the newest checkpoint of a thread",
    "AsyncShallowRedisSaver": "keeps only the newest checkpoint of a thread",
    "DeferredCheckpointSaver": "buffers checkpoints and may never store the ones in between",
}


@dataclass(frozen=True, slots=True)
class Traits:
    """How a saver may be asked, and what may be learnt from what passes through it."""

    kind: Literal["storage", "tuples", "opaque"]
    ordered: bool = False
    """Own writes come in `writes_sort_key` order: (task path, task id, idx)."""
    by_task: bool = False
    """They come in (task id, idx) order, as before there was that function."""
    seeds_by_version: bool = False
    """A stored value is found by its channel version, not in the checkpoint's row."""
    plain_seeds: bool = True
    """A stored value ends the walk, snapshot or not, and its checkpoint's own writes follow it."""
    sync: bool = True
    """Whether the saver has a working sync face; an absent one keeps its own error."""
    asynchronous: bool = True
    rooted: Callable[[Any, str, str], bool] | None = None
    arooted: Callable[[Any, str, str], Any] | None = None
    prove_always: bool = False


def refuse_unsupported(saver: Any) -> None:
    """Refuse what cannot be wrapped without losing data.

    Raises:
        UnsupportedSaverError: not a saver, or one that keeps no ancestors.

    """
    if not isinstance(saver, BaseCheckpointSaver):
        msg = (
            f"CachedHistorySaver wraps a BaseCheckpointSaver instance, got {type(saver).__name__}. "
            "Open the saver first, for example: "
            "with PostgresSaver.from_conn_string(url) as inner: saver = CachedHistorySaver(inner)"
        )
        raise UnsupportedSaverError(msg)
    for cls in type(saver).__mro__:
        reason = _KEEP_NO_PARENTS.get(cls.__name__)
        if reason is not None:
            msg = (
                f"{type(saver).__name__} {reason}, and a DeltaChannel is rebuilt from the "
                "ancestors' writes: with it, delta channels read empty without an error. Use a "
                "saver that keeps every checkpoint (PostgresSaver, SqliteSaver, InMemorySaver)."
            )
            raise UnsupportedSaverError(msg)


def traits_of(saver: Any) -> Traits:
    """The traits of `saver`, from where its methods are defined."""
    home = _home(saver)
    if home == _MEMORY:
        ordered, seen = sorts_by_path("memory"), _memory_history()
        return Traits(
            "storage",
            ordered=ordered,
            by_task=not ordered and seen != ["f", "e"],
            seeds_by_version=True,
            plain_seeds=bool(seen),
            rooted=_memory_rooted,
            arooted=_amemory_rooted,
            prove_always=True,
        )
    if home is not None and home.startswith(_SQLITE):
        has_loop = hasattr(saver, "loop")
        return Traits(
            "storage",
            ordered=sorts_by_path("sqlite"),
            by_task=not sorts_by_path("sqlite"),
            asynchronous=has_loop,
            rooted=_on_loop(_asqlite_rooted) if has_loop else _sqlite_rooted,
            arooted=_asqlite_rooted,
            prove_always=not has_loop,
        )
    if home is not None and home.startswith(_POSTGRES):
        has_loop = hasattr(saver, "loop")
        return Traits(
            "storage",
            ordered=sorts_by_path("postgres"),
            by_task=not sorts_by_path("postgres"),
            seeds_by_version=True,
            plain_seeds=_postgres_sees_plain_seeds(),
            asynchronous=has_loop,
            rooted=_on_loop(_apostgres_rooted) if has_loop else _postgres_rooted,
            arooted=_apostgres_rooted,
        )
    cls = type(saver)
    own_walk = (
        cls.get_delta_channel_history is not BaseCheckpointSaver.get_delta_channel_history
        or cls.aget_delta_channel_history is not BaseCheckpointSaver.aget_delta_channel_history
    )
    return Traits("opaque" if own_walk else "tuples")


def _home(saver: Any) -> str | None:
    """The LangGraph package that defines all of the saver's reads and writes, if one does."""
    own = getattr(saver, "__dict__", {})
    homes = set()
    for name in _READS_AND_WRITES:
        method = getattr(type(saver), name, None)
        if method is None or name in own:
            return None
        homes.add(method.__module__)
    homes.discard(_BASE)  # methods a saver inherits, such as the missing face's errors
    packages = {home for home in homes if home.startswith((_MEMORY, _SQLITE, _POSTGRES))}
    if packages != homes or not homes:
        return None
    roots = {next(p for p in (_MEMORY, _SQLITE, _POSTGRES) if home.startswith(p)) for home in homes}
    return min(homes) if len(roots) == 1 else None


def _memory_history() -> list[Any]:
    """What the installed `InMemorySaver` replays of two tasks upon a plain seed.

    Some sort by task id, some keep the order of arrival, and some take the seed to include
    the writes.
    """
    saver = sys.modules[_MEMORY].InMemorySaver()
    root = {**empty_checkpoint(), "id": "1", "channel_values": {"log": []}}
    place: Any = {"configurable": {"thread_id": "", "checkpoint_ns": ""}}
    stored = saver.put(place, {**root, "channel_versions": {"log": "1"}}, {}, {"log": "1"})
    for task in "fe":
        saver.put_writes(stored, [("log", task)], task)
    child = saver.put(stored, {**root, "id": "2", "channel_values": {}}, {}, {})
    history = saver.get_delta_channel_history(config=child, channels=["log"])
    return [value for _, _, value in history["log"]["writes"]]


def _postgres_sees_plain_seeds() -> bool:
    """Whether the installed walk looks for values that only `checkpoint_blobs` shows."""
    build = getattr(sys.modules.get(f"{_POSTGRES}.base"), "_build_delta_stage1_sql", None)
    return build is not None and "checkpoint_blobs" in build(["log"], paged=True)


# -- is any parent row missing? ---------------------------------------------------------------

_DANGLING_SQLITE = (
    "SELECT 1 FROM checkpoints c WHERE c.thread_id = ? AND c.checkpoint_ns = ? "
    "AND c.parent_checkpoint_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM checkpoints p "
    "WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns "
    "AND p.checkpoint_id = c.parent_checkpoint_id) LIMIT 1"
)
# EXCEPT, because a planner without statistics joins a NOT EXISTS in quadratic time
_DANGLING_POSTGRES = (
    "SELECT parent_checkpoint_id FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = %s "
    "AND parent_checkpoint_id IS NOT NULL EXCEPT "
    "SELECT checkpoint_id FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = %s LIMIT 1"
)


def _memory_rooted(saver: Any, thread_id: str, checkpoint_ns: str) -> bool:
    rows: Mapping[str, Any] = saver.storage.get(thread_id, {}).get(checkpoint_ns, {})
    return all(row[2] is None or row[2] in rows for row in list(rows.values()))


async def _amemory_rooted(saver: Any, thread_id: str, checkpoint_ns: str) -> bool:
    return _memory_rooted(saver, thread_id, checkpoint_ns)


def _sqlite_rooted(saver: Any, thread_id: str, checkpoint_ns: str) -> bool:
    with saver.cursor(transaction=False) as cursor:
        cursor.execute(_DANGLING_SQLITE, (thread_id, checkpoint_ns))
        return cursor.fetchone() is None


async def _asqlite_rooted(saver: Any, thread_id: str, checkpoint_ns: str) -> bool:
    await saver.setup()
    async with (
        saver.lock,
        saver.conn.execute(_DANGLING_SQLITE, (thread_id, checkpoint_ns)) as cursor,
    ):
        return await cursor.fetchone() is None


def _postgres_rooted(saver: Any, thread_id: str, checkpoint_ns: str) -> bool:
    with saver._cursor() as cursor:  # noqa: SLF001 - takes the saver's lock and pipeline as it does
        cursor.execute(_DANGLING_POSTGRES, (thread_id, checkpoint_ns) * 2)
        return cursor.fetchone() is None


async def _apostgres_rooted(saver: Any, thread_id: str, checkpoint_ns: str) -> bool:
    async with saver._cursor() as cursor:  # noqa: SLF001 - as above
        await cursor.execute(_DANGLING_POSTGRES, (thread_id, checkpoint_ns) * 2)
        return await cursor.fetchone() is None


def _on_loop(query: Callable[[Any, str, str], Any]) -> Callable[[Any, str, str], bool]:
    """The sync face of a saver that lives on an event loop: ask from the caller's thread."""

    def rooted(saver: Any, thread_id: str, checkpoint_ns: str) -> bool:
        future = asyncio.run_coroutine_threadsafe(
            query(saver, thread_id, checkpoint_ns), saver.loop
        )
        return bool(future.result())

    return rooted
