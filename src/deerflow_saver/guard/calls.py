"""The saver calls the guard looks at, with what it needs to know of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from deerflow_saver._arguments import PUT, PUT_WRITES, arguments, configurable, is_mapping
from deerflow_saver.channel_mode.marker import CHECKPOINT_MODE_METADATA_KEY, asks_for_full
from deerflow_saver.guard.fence import Call
from deerflow_saver.guard.policy import MARKER, Signal, signal_of

__all__ = ["Put", "Target", "Writes", "put_of", "target_of", "writes_of"]

_OWN_NAMES = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"})


class Target(NamedTuple):
    """Where a call goes."""

    config: Any
    names: Mapping[str, Any]
    """The config's `configurable`."""
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    key: tuple[str, str]
    """The key of locks and flights."""
    full: bool
    """Whether the call is made in full mode, which a delta thread refuses."""

    def head_config(self, ns: str | None = None) -> Any:
        """The config of the head, of the call's namespace or of another one of its thread."""
        dropped = {"checkpoint_id", "checkpoint_map"}
        names = {name: value for name, value in self.names.items() if name not in dropped}
        if ns is not None:
            names["checkpoint_ns"] = ns
        return {**self.config, "configurable": names}

    def scope(self) -> tuple[tuple[str, str], ...]:
        """What else a wrapping saver may choose rows by."""
        return tuple(
            sorted(
                (name, f"{type(value).__name__}:{value}")
                for name, value in self.names.items()
                if name not in _OWN_NAMES
                and not name.startswith("__")
                and isinstance(value, str | int | float)
            )
        )


class Put(NamedTuple):
    """A `put`."""

    target: Target
    call: Call
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    signal: Signal
    child: str
    """Id of the checkpoint being put."""

    def stamped(self, channels: Iterable[str]) -> Call:
        """The same call, its metadata with the marker; the caller's own stays as it is."""
        name, args, kwargs = self.call
        metadata = {**self.metadata, MARKER: sorted(channels)}
        if len(args) > _METADATA:
            return name, (*args[:_METADATA], metadata, *args[_METADATA + 1 :]), kwargs
        return name, args, {**kwargs, "metadata": metadata}

    def signal_with(self, channels: Iterable[str] | None) -> Signal:
        """The signal of the put as stored with the marker; None: without."""
        if channels is None:
            return self.signal
        counters = self.signal.counters
        return Signal((*counters, *channels), marked=True, vague=False, counters=counters)

    def builds_on(self) -> list[Any]:
        """Ids this put needs: its parent, and the parent graphs' checkpoints."""
        parents = self.metadata.get("parents")
        ids = [self.target.checkpoint_id]
        ids += parents.values() if is_mapping(parents) else ()
        return ids + _mapped(self.target)


_METADATA = PUT.index("metadata")


class Writes(NamedTuple):
    """A `put_writes`."""

    target: Target
    call: Call
    writes: Sequence[tuple[str, Any]]
    channels: Sequence[str]
    """Of each write."""
    task_id: str

    def builds_on(self) -> list[Any]:
        """Ids these writes need."""
        return [self.target.checkpoint_id, *_mapped(self.target)]


def _mapped(target: Target) -> list[Any]:
    above = target.names.get("checkpoint_map")
    return list(above.values()) if is_mapping(above) else []


def target_of(config: Any) -> Target | None:
    """The target of a config; None if the saver had better say itself what is wrong with it."""
    names = configurable(config)
    thread_id, checkpoint_ns = names.get("thread_id"), names.get("checkpoint_ns", "")
    checkpoint_id = names.get("checkpoint_id") or None
    if thread_id is None or not isinstance(checkpoint_ns, str):
        return None
    if checkpoint_id is not None and not isinstance(checkpoint_id, str):
        return None
    thread = str(thread_id)
    key = thread, checkpoint_ns
    return Target(config, names, thread, checkpoint_ns, checkpoint_id, key, asks_for_full(names))


def put_of(call: Call) -> Put | None:
    """A put, if its arguments are what they should be."""
    _, args, kwargs = call
    config, checkpoint, metadata, _ = arguments(PUT, args, kwargs)
    target = target_of(config)
    if metadata is None:
        metadata = {}
    if target is None or not is_mapping(checkpoint) or not is_mapping(metadata):
        return None
    child = checkpoint.get("id")
    if not isinstance(child, str):
        return None
    signal = signal_of(_with_mode(target, metadata), checkpoint.get("channel_values"))
    return Put(target, call, checkpoint, metadata, signal, str(child))


def _with_mode(target: Target, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata as savers store it: the config's own metadata and configurable added."""
    for source in (target.config.get("metadata"), target.names):
        if is_mapping(source) and CHECKPOINT_MODE_METADATA_KEY in source:
            return {**source, **metadata}
    return metadata


def writes_of(call: Call) -> Writes | None:
    """A put_writes, if its arguments are what they should be."""
    _, args, kwargs = call
    config, writes, task_id, _ = arguments(PUT_WRITES, args, kwargs)
    target = target_of(config)
    if target is None or target.checkpoint_id is None or writes is None:
        return None
    try:
        pairs = [(channel, value) for channel, value in writes]
    except (TypeError, ValueError):
        return None
    return Writes(target, call, pairs, [channel for channel, _ in pairs], str(task_id))
