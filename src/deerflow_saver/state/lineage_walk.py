"""The search for the checkpoint before a message, as plans of storage requests.

Operations: `get_tuple` and `history` as the gate's, `state` (a config, materialised),
`older` (a row; whether its namespace has an older one) and `states` (the arguments of an
accessor's `history`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from langgraph.graph.message import _messages_delta_reducer

from deerflow_saver._arguments import step_of
from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.gate import judge_row
from deerflow_saver.state import ancestry
from deerflow_saver.state.ancestry import Identity, Target, identity_of, occurrences
from deerflow_saver.state.lineage_errors import (
    CheckpointLineageIntegrityError,
    CheckpointParentMissingError,
)
from deerflow_saver.state.messages import merge_message_writes

__all__ = ["find_base_plan", "find_plan", "settled_before"]

_NAMING_REDUCERS = (merge_message_writes, _messages_delta_reducer)
"""Reducers of messages that change only the messages a write names."""


def settled_before(newest_first: Iterable[Any], target: Target) -> tuple[Any, bool]:
    """The newest settled checkpoint older than any with the message; whether one has it."""
    base = None
    for checkpoint in reversed(list(newest_first)):
        if ancestry.is_metadata_only_checkpoint(checkpoint):
            continue
        if occurrences(checkpoint, target):
            return base, True
        if _identity(checkpoint) and not ancestry.has_pending_tasks(checkpoint):
            base = checkpoint
    return None, False


def find_base_plan(accessor: Any, head: Any, target: Target, max_depth: int) -> Plan[Any]:
    """`find_plan`, and `settled_before` over the history if a parent link is missing."""
    try:
        return (yield from find_plan(accessor, head, target, max_depth))
    except CheckpointParentMissingError:
        identity = cast("Identity", _identity(head))
        states = yield "states", {"config": identity.thread(), "limit": max_depth}
        base, found = settled_before(_until(identity, states), target)
        # Where the first one looked at holds it already, it came in before.
        if base is not None or (found and len(states) < max_depth):
            return base
        raise CheckpointLineageIntegrityError(
            f"Could not locate the target message in recent checkpoint history (limit={max_depth})",
            identity,
        ) from None


def _until(identity: Identity, states: Iterable[Any]) -> list[Any]:
    """The states that are not newer than a checkpoint: ids are in the order of time."""
    known = ((state, _identity(state)) for state in states)
    return [state for state, own in known if own and own.checkpoint_id <= identity.checkpoint_id]


def find_plan(accessor: Any, head: Any, target: Target, max_depth: int) -> Plan[Any]:
    """The nearest settled ancestor without the message, materialised; None if there is none."""
    walk = _Walk(accessor, target)
    row = yield from walk.begin(head)
    budget = {"looked at": max_depth, "stepped over": max_depth}
    while row.parent_config is not None:
        row = yield from walk.parent(row)
        beside = ancestry.is_metadata_only_checkpoint(row)
        _spend(budget, "stepped over" if beside else "looked at", max_depth, row)
        base = None if beside else (yield from walk.settled_without_message(row))
        if base is not None:
            return base
    yield from _require_root(row)
    return None


def _spend(budget: dict[str, int], on: str, max_depth: int, row: Any) -> None:
    """Rows beside the conversation do not use up the depth, but are not without limit."""
    budget[on] -= 1
    if budget[on] < 0:
        raise CheckpointLineageIntegrityError(
            f"Checkpoint lineage exceeded the scan limit ({max_depth})", _identity(row)
        )


class _Walk:
    """Where the walk is, and whether the message is there."""

    def __init__(self, accessor: Any, target: Target) -> None:
        self._target = target
        self._is_full = accessor.mode == "full"
        self._channels = getattr(getattr(accessor, "graph", None), "channels", None)
        channel = (self._channels or {}).get(target.channel)
        self._names_only = getattr(channel, "reducer", None) in _NAMING_REDUCERS
        self._seen: set[Identity] = set()
        self._holds = True
        self._state: Any = None

    def begin(self, head: Any) -> Plan[Any]:
        """The head's row, after a look at what it holds."""
        identity, count = _identity(head), occurrences(head, self._target)
        if count != 1:
            fault = "not present" if count == 0 else "present more than once"
            raise CheckpointLineageIntegrityError(
                f"Target message is {fault} in the checkpoint head", identity
            )
        if identity is None:
            raise CheckpointLineageIntegrityError("Checkpoint head is not addressable")
        row = yield from self._row(identity)
        holds = ancestry.stored_holds(row, self._target)
        # What a materialised head shows may come from tasks whose step is not finished.
        if holds is None and ancestry.concerns(row, self._target):
            holds = yield from self._materialised_holds(row)
        self._holds = True if holds is None else holds
        return row

    def parent(self, child: Any) -> Plan[Any]:
        """The row of the parent, after a look at what it holds."""
        identity = identity_of(child.parent_config)
        if identity is None:
            raise _unaddressable(_identity(child))
        if identity in self._seen:
            raise CheckpointLineageIntegrityError("Checkpoint lineage contains a cycle", identity)
        row = yield from self._row(identity)
        self._state = None
        holds = ancestry.stored_holds(row, self._target)
        told = self._names_only and ancestry.holds_as_child(row, child, self._target)
        if holds is None and told:
            holds = self._holds
        if holds is None:
            holds = yield from self._materialised_holds(row)
        self._holds = holds
        return row

    def settled_without_message(self, row: Any) -> Plan[Any]:
        """The row materialised, if it is what is looked for."""
        if self._holds:
            return None
        if self._state is None:
            self._holds = yield from self._materialised_holds(row)
        if self._holds or ancestry.has_pending_tasks(self._state):
            return None
        return self._state

    def _row(self, identity: Identity) -> Plan[Any]:
        row = yield "get_tuple", identity.config()
        if row is None or _identity(row) != identity:
            raise _unaddressable(identity)
        if self._is_full:
            yield from judge_row(row, self._channels)
        self._seen.add(identity)
        return row

    def _materialised_holds(self, row: Any) -> Plan[bool]:
        identity = _identity(row)
        self._state = yield "state", identity.config() if identity else row.config
        if not ancestry.exists(self._state) or _identity(self._state) != identity:
            raise _unaddressable(identity)
        return occurrences(self._state, self._target) > 0


def _require_root(row: Any) -> Plan[None]:
    """A first checkpoint has nothing before it; any other lacks its parent link."""
    step = step_of(ancestry.checkpoint_metadata(row))
    if step is not None and step < 0:
        return
    if (yield "older", row):
        raise CheckpointParentMissingError(
            "Checkpoint lineage ended before the target message", _identity(row)
        )


def _unaddressable(identity: Identity | None) -> CheckpointLineageIntegrityError:
    return CheckpointLineageIntegrityError("Checkpoint parent link is not addressable", identity)


def _identity(checkpoint: Any) -> Identity | None:
    return identity_of(getattr(checkpoint, "config", None))
