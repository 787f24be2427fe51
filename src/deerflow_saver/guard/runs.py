"""Who makes a call: LangGraph's runs, those they are part of, and callers outside of any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from deerflow_saver.guard.rule import Reason

__all__ = ["RUNTIME", "UNTOLD", "Base", "Refusal", "Run", "begin"]

RUNTIME = "__pregel_runtime"
"""LangGraph's key in `configurable` for an object of which each run has its own."""
_TASK = "__pregel_task_id"
"""LangGraph's key for the task that a nested run belongs to (`PregelLoop.is_nested`)."""


class Refusal(NamedTuple):
    """Why a call is refused."""

    reason: Reason
    channels: Iterable[str] = ()
    head_id: str | None = None
    """The head at the first refusal."""
    behind: bool = False
    """Whether the call only builds on what was refused."""


class Run:
    """Whoever reads and then writes: a LangGraph run, or a caller between two reads."""

    __slots__ = ("above", "ends")

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        """LangGraph's run whose call has these `names`, or a caller."""
        self.ends = names is not None
        """Whether a refusal is the end of it: LangGraph's run fails, a caller may go on."""
        self.above: Above = _above(names) if names is not None and _TASK in names else {}
        """The runs whose tasks it is part of."""

    def refused_above(self) -> Refusal | None:
        """Why a run that it is part of was refused, or will be."""
        for namespace, above in self.above.values():
            refusal = namespace.refused_to(above) or namespace.leaves_line(above)
            if refusal is not None:
                return refusal
        return None


class _Namespace(Protocol):
    """What is remembered of a namespace, as far as it concerns runs (see `state.Namespace`)."""

    def refused_to(self, run: Run | None) -> Refusal | None:
        """Why nothing more of the run is accepted."""

    def leaves_line(self, run: Run) -> Refusal | None:
        """Why the first put of `run` will be refused."""

    def read_head(self, row: Any) -> None:
        """The newest row was read."""


Above = Mapping[tuple[str, str], tuple[_Namespace, Run]]
_within: ContextVar[Above] = ContextVar("deerflow_guard_runs", default=MappingProxyType({}))
"""The runs under way in this context, by thread and namespace: their tasks have copies of it."""


def _above(names: Mapping[str, Any]) -> Above:
    """Of the runs in this context, those in whose namespaces that of a nested run lies."""
    thread_id, inner = str(names.get("thread_id")), names.get("checkpoint_ns") or ""
    return {
        (thread, outer): found
        for (thread, outer), found in _within.get().items()
        if thread == thread_id and inner != outer and (not outer or inner.startswith(f"{outer}|"))
    }


def begin(run: Run, key: tuple[str, str], namespace: _Namespace) -> None:
    """A run begins in this context, in the namespace of `key`."""
    _within.set({**run.above, key: (namespace, run)})


class Base(NamedTuple):
    """What a run puts its next checkpoint upon."""

    checkpoint_id: str | None
    """None: it will be the first one."""
    own: bool
    """Whether the run itself put it."""


UNTOLD = Base(None, own=True)
"""Stands for what cannot be told."""
