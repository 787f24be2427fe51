"""The plan of a compaction: read the head, have it summarised, one conditional `put`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.channel_mode.gate import judge_row
from deerflow_saver.errors import InvalidConfigError, NonHeadWriteError
from deerflow_saver.state.channels import refuse_unknown_fields
from deerflow_saver.state.compaction_errors import (
    ContextCompactionBusy,
    ContextCompactionFailed,
    ThreadCheckpointNotFoundError,
)
from deerflow_saver.state.compaction_types import (
    Asked,
    CompactionRequest,
    ThreadCompactionResult,
)
from deerflow_saver.state.linear_copy import Source, hydrated, linear_copy, stored_forms, visible
from deerflow_saver.state.questions import scheduled_tasks
from deerflow_saver.state.summaries import (
    DEFAULT_KEEP,
    Outcome,
    outcome_of,
    partition,
)

__all__ = ["COMPACTED", "NOT_ENOUGH", "compacting"]

COMPACTED = "deerflow_compacted"
"""In the new checkpoint's metadata: how many messages went."""
NOT_ENOUGH = "not_enough_messages"
_FOREIGN = "foreign writes"
"""A run is about to store its end: a summary of another head would not help."""


def compacting(asked: Asked) -> Plan[ThreadCompactionResult]:
    """Replace the thread's messages; once more, with a new summary, if the head has moved."""
    source = yield from _head(asked, asked.once())
    try:
        return (yield from _attempt(asked, source))
    except _Moved as moved:
        source = moved.now
    except NonHeadWriteError as error:
        if error.reason == _FOREIGN:
            raise
        source = yield from _head(asked, asked.once())
    try:
        return (yield from _attempt(asked, source))
    except _Moved as moved:
        _refuse_moved(asked, source, moved.now)


class _Moved(Exception):  # noqa: N818 - a signal within the plan
    """The head is not what was summarised."""

    def __init__(self, now: Source) -> None:
        super().__init__()
        self.now = now


def _attempt(asked: Asked, source: Source) -> Plan[ThreadCompactionResult]:
    """Summarise a state and store the result on it.

    The summariser may change what it is given, so what is stored is read again.
    """
    request = _request(asked, source)
    if request is None:
        return ThreadCompactionResult(asked.thread_id, compacted=False, reason=NOT_ENOUGH)
    answer = yield from _summarised(request)
    config = asked.once()
    now = yield from _head(asked, config)
    if now.row.checkpoint["id"] != source.row.checkpoint["id"]:
        raise _Moved(now)
    if _own_writes(now.row) != _own_writes(source.row):
        _refuse_moved(asked, source, now)
    outcome = _outcome(asked, answer, now)
    if outcome is None:
        return ThreadCompactionResult(asked.thread_id, compacted=False, reason=NOT_ENOUGH)
    stored = yield from _stored(asked, config, now, outcome)
    return ThreadCompactionResult(
        asked.thread_id,
        compacted=True,
        removed_message_count=outcome.removed,
        preserved_message_count=outcome.preserved,
        summary_updated=outcome.summary_updated,
        checkpoint_id=configurable(stored)["checkpoint_id"],
        total_tokens=outcome.total_tokens,
    )


# -- reading ------------------------------------------------------------------------------------


def _head(asked: Asked, config: RunnableConfig) -> Plan[Source]:
    """The head's state, if nothing is left to run there."""
    row = yield "get_tuple", config
    if row is None:
        raise ThreadCheckpointNotFoundError(asked.thread_id)
    if asked.full:
        yield from judge_row(row, asked.graph.channels)
    source = yield from hydrated(asked.graph.channels, row)
    _refuse_busy(asked, source)
    return source


def _refuse_busy(asked: Asked, source: Source) -> None:
    """A run goes on from what it has read, and a question belongs to its checkpoint."""
    row = source.row
    same = {**_copied(asked, source, {}), "id": row.checkpoint["id"]}
    tasks = scheduled_tasks(asked.graph, (same, row.metadata), asked.saver.serde)
    if tasks:
        raise ContextCompactionBusy(
            thread_id=asked.thread_id,
            checkpoint_id=row.checkpoint["id"],
            tasks=sorted({name for name, _ in tasks.values()}),
            asks=any(channel == "__interrupt__" for _, channel, _ in row.pending_writes or ()),
        )


def _own_writes(row: Any) -> list[tuple[str, str]]:
    return sorted((task_id, channel) for task_id, channel, _ in row.pending_writes or ())


def _request(asked: Asked, source: Source) -> CompactionRequest | None:
    """What to ask the summariser; None if there is nothing to ask."""
    values = visible(source)
    messages = values.get(asked.channel)
    if not isinstance(messages, list) or not messages:
        return None
    keep = DEFAULT_KEEP if asked.keep is None else asked.keep
    to_summarize, to_preserve = partition(messages, keep)
    if not to_summarize and not asked.chooses:
        return None
    previous = values.get(asked.summary_channel) if asked.summary_channel else None
    return CompactionRequest(
        thread_id=asked.thread_id,
        checkpoint_id=source.row.checkpoint["id"],
        values=values,
        messages=list(messages),
        to_summarize=to_summarize,
        to_preserve=to_preserve,
        previous_summary=previous if isinstance(previous, str) else "",
        keep=asked.keep,
        force=asked.force,
        context={**asked.context, "thread_id": asked.thread_id},
    )


# -- summarising ---------------------------------------------------------------------------------


def _summarised(request: CompactionRequest) -> Plan[Any]:
    try:
        answer = yield "summarize", request
    except Exception as error:
        raise ContextCompactionFailed from error
    if inspect.isawaitable(answer):  # only the async face awaits
        if inspect.iscoroutine(answer):
            answer.close()
        refuse_async()
    return answer


def refuse_async() -> NoReturn:
    """Refuse a summariser that only the async face can call.

    Raises:
        InvalidConfigError: always.

    """
    msg = "summarize is async, and compact_thread calls it in place: use acompact_thread"
    raise InvalidConfigError(msg)


def _outcome(asked: Asked, answer: Any, now: Source) -> Outcome | None:
    request = _request(asked, now)
    if request is None:
        return None
    try:
        outcome = outcome_of(answer, request, asked.channel, asked.summary_channel)
    except Exception as error:  # what it is given may be of any kind
        raise ContextCompactionFailed from error
    if outcome is not None:
        refuse_unknown_fields(asked.graph.channels, outcome.values)
        _refuse_unstorable(asked, outcome.values)
    return outcome


def _refuse_unstorable(asked: Asked, values: Mapping[str, Any]) -> None:
    try:
        asked.saver.serde.dumps_typed(stored_forms(asked.graph.channels, values))
    except Exception as error:  # a serialiser raises what it likes
        raise ContextCompactionFailed from error


# -- storing -------------------------------------------------------------------------------------


def _copied(asked: Asked, source: Source, values: Mapping[str, Any]) -> dict[str, Any]:
    """The head again, with other values."""
    specs, row = asked.graph.channels, source.row
    newest = max(row.checkpoint["channel_versions"].values(), default=None)
    version = asked.saver.get_next_version(newest, None)
    return linear_copy(source, row, specs, asked.graph.nodes, version, stored_forms(specs, values))


def _stored(
    asked: Asked, config: RunnableConfig, source: Source, outcome: Outcome
) -> Plan[RunnableConfig]:
    """Put the state on top of the head it was made from, if that still is the head."""
    row = source.row
    copied = _copied(asked, source, outcome.values)
    metadata = {
        "source": "update",
        "step": row.metadata.get("step", -1) + 1,
        "parents": row.metadata.get("parents", {}),
        COMPACTED: outcome.removed,
    }
    names = {**configurable(config), "checkpoint_id": row.checkpoint["id"]}
    place: RunnableConfig = {**config, "configurable": names}
    yield "check", None
    return (yield "put", (place, copied, metadata, copied["channel_versions"]))  # type: ignore[no-any-return]


def _refuse_moved(asked: Asked, source: Source, now: Source) -> NoReturn:
    before, after = source.row.checkpoint["id"], now.row.checkpoint["id"]
    raise NonHeadWriteError(
        thread_id=asked.thread_id,
        checkpoint_ns="",
        checkpoint_id=before,
        head_id=after,
        operation="put",
        channels=(asked.channel,),
        reason=_FOREIGN if before == after else "fork",
    )
