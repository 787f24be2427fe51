"""Delta writes that could not be stored, so that no checkpoint is stored that builds on them.

LangGraph before 1.2.15 waits for a superstep's delta writes before it stores the checkpoint
they make, but not for their success: the run fails, and its checkpoint is kept without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deerflow_saver._arguments import configurable
from deerflow_saver._recent import Recent
from deerflow_saver.errors import LostWritesError

__all__ = ["FailedWrites"]

_KEPT = 512
_RUNTIME = "__pregel_runtime"
"""LangGraph's key in `configurable` for an object of which each run has its own."""

Key = tuple[str, str, str]


@dataclass(slots=True)
class _Failure:
    """What one run could not store on one checkpoint."""

    runtime: Any
    channels: frozenset[str]
    error: Exception
    unsaved: bool
    """Whether the checkpoint itself was refused."""


class FailedWrites:
    """The failures of the runs that are under way, the last few of them."""

    def __init__(self, needed: Callable[[], bool]) -> None:
        """`needed`: whether LangGraph would go on; asked at the first failure, and not before."""
        self._needed = needed
        self._failures: Recent[Key, _Failure] = Recent(_KEPT)

    def note(self, config: Any, writes: Iterable[Any], error: Exception) -> None:
        """A `put_writes` of a LangGraph run failed."""
        names = configurable(config)
        runtime = names.get(_RUNTIME)
        if runtime is None or not self._needed():
            return
        channels = frozenset(write[0] for write in writes)

        def more(known: _Failure | None) -> _Failure:
            ours = known is not None and known.runtime is runtime
            lost = channels | known.channels if known is not None and ours else channels
            return _Failure(runtime, lost, error, unsaved=False)

        self._failures.change(_key(names), more)

    def refuse(self, config: Any, checkpoint: Any, metadata: Any, delta: Collection[str]) -> None:
        """Before a `put`: raise if it builds on delta writes that its run could not store.

        Args:
            config: names the parent.
            checkpoint: to be stored.
            metadata: of the checkpoint; its counters name delta channels.
            delta: other names known to be delta channels.

        Raises:
            LostWritesError: it does. Nothing has been stored of the checkpoint.

        """
        if len(self._failures) == 0:
            return
        names = configurable(config)
        failure = self._failures.get(_key(names))
        if failure is None or failure.runtime is not names.get(_RUNTIME):
            return
        counted = (metadata or {}).get("counters_since_delta_snapshot") or ()
        lost = failure.channels & {*counted, *delta} - set(_stored(checkpoint))
        if not lost and not failure.unsaved:
            return
        channels = frozenset(lost or failure.channels)
        self._failures.keep(
            _key({**names, "checkpoint_id": checkpoint["id"]}),
            _Failure(failure.runtime, channels, failure.error, unsaved=True),
        )
        raise LostWritesError(
            thread_id=str(names.get("thread_id")),
            checkpoint_ns=str(names.get("checkpoint_ns", "")),
            checkpoint_id=str(names.get("checkpoint_id")),
            channels=tuple(sorted(channels)),
        ) from failure.error


def _key(names: Mapping[str, Any]) -> Key:
    ns, cid = names.get("checkpoint_ns", ""), names.get("checkpoint_id")
    return str(names.get("thread_id")), str(ns), str(cid)


def _stored(checkpoint: Any) -> Iterable[str]:
    return checkpoint.get("channel_values") or ()
