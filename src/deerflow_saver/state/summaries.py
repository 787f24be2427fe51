"""Which messages are summarised and which stay, and what the thread then holds. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately

from deerflow_saver.state.compaction_types import Compaction, CompactionRequest
from deerflow_saver.state.message_ids import MessageIds

__all__ = [
    "DEFAULT_KEEP",
    "Outcome",
    "outcome_of",
    "partition",
]

DEFAULT_KEEP = 20
"""How many of the newest messages stay, unless the caller says otherwise."""
_SUMMARY = "deerflow_summary"
"""Marks a message that is a summary, in its `additional_kwargs`."""
_INTRODUCTION = "Summary of the conversation so far:\n\n"
_UNPORTABLE = re.compile("[\x00\ud800-\udfff]")


class Outcome(NamedTuple):
    """What a summary makes of a state."""

    values: dict[str, Any]
    """Every channel that is set."""
    removed: int
    preserved: int
    """Of the messages before."""
    summary_updated: bool
    total_tokens: int


# -- which messages stay ----------------------------------------------------------------------


def partition(messages: Sequence[Any], keep: int) -> tuple[list[Any], list[Any]]:
    """Which messages are summarised, and which stay: about the `keep` newest.

    A tool's answer stays with the call it belongs to. Instructions (system messages) stay, and
    so does the newest question of the user, in front of the others.
    """
    cut = _whole_calls(messages, max(len(messages) - keep, 0))
    older = list(messages[:cut])
    question = next((m for m in reversed(messages) if _is_question(m)), None)
    stay = [m for m in older if isinstance(m, SystemMessage) or m is question]
    return [m for m in older if not any(m is other for other in stay)], [*stay, *messages[cut:]]


def _whole_calls(messages: Sequence[Any], cut: int) -> int:
    """The nearest place not after `cut` where no tool's answer is parted from its call.

    Answers whose call is nowhere are summarised as well: no model takes them alone.
    """
    place = cut
    while place < len(messages) and isinstance(messages[place], ToolMessage):
        place += 1
    wanted = {message.tool_call_id for message in messages[cut:place]}
    for earlier in range(cut - 1, -1, -1):
        message = messages[earlier]
        if not wanted:
            break
        if isinstance(message, AIMessage) and wanted & {call["id"] for call in message.tool_calls}:
            return earlier
    return place


def _is_question(message: Any) -> bool:
    """Whether the user wrote it."""
    if not isinstance(message, HumanMessage):
        return False
    marks = message.additional_kwargs
    return not (marks.get("hide_from_ui") or marks.get("lc_source") or marks.get(_SUMMARY))


# -- what the thread then holds -----------------------------------------------------------------


def outcome_of(
    answer: Any, request: CompactionRequest, channel: str, summary_channel: str | None
) -> Outcome | None:
    """What a summariser's answer makes of the state; None if it found nothing to do.

    Args:
        answer: a text, a `Compaction` or something like it, or None.
        request: what was asked, from a state that the summariser has not had.
        channel: where the messages are.
        summary_channel: where the summary goes; None for a message in front of the others.

    Raises:
        TypeError: the answer is none of these.
        ValueError: the summary is empty, or text that a database may not take.

    """
    if answer is None:
        return None
    found = _compaction(answer, request)
    _refuse_unportable(found.summary_text)
    messages, before = _checked(found.preserved_messages, request.messages), request.messages
    values = dict(found.values)
    if found.summary_text and summary_channel is None:
        messages = [_summary_message(found.summary_text), *messages]
    elif found.summary_text and summary_channel is not None:
        values[summary_channel] = found.summary_text
    held, holds = Counter(map(_key, before)), Counter(map(_key, messages))
    updated = bool(holds - held)
    if summary_channel in values:
        updated = updated or values[summary_channel] != request.previous_summary
    preserved = (held & holds).total()
    values[channel] = _with_ids(messages)
    total = _estimate(before) if found.total_tokens is None else found.total_tokens
    return Outcome(values, len(before) - preserved, preserved, updated, total)


def _compaction(answer: Any, request: CompactionRequest) -> Compaction:
    if isinstance(answer, str):
        if not answer.strip():
            msg = "the summary is empty"
            raise ValueError(msg)
        return Compaction(request.to_preserve, answer)
    if isinstance(answer, Compaction):
        return answer
    if not hasattr(answer, "preserved_messages"):
        msg = f"a summary is a str, a Compaction or None, not {type(answer).__name__}"
        raise TypeError(msg)
    return Compaction(
        answer.preserved_messages,
        getattr(answer, "summary_text", None) or "",
        getattr(answer, "total_tokens", None),
        getattr(answer, "values", None) or {},
    )


def _refuse_unportable(text: Any) -> None:
    if not isinstance(text, str):
        msg = f"summary_text is a str, not {type(text).__name__}"
        raise TypeError(msg)
    if _UNPORTABLE.search(text):
        msg = "the summary holds a NUL or half a surrogate pair, which databases refuse"
        raise ValueError(msg)


def _checked(messages: Any, before: Sequence[Any]) -> list[Any]:
    """What is to be stored as messages: no junk among messages."""
    if not isinstance(messages, list | tuple):
        msg = f"preserved_messages is a list, not {type(messages).__name__}"
        raise TypeError(msg)
    if all(isinstance(message, BaseMessage) for message in before):
        junk = next((m for m in messages if not isinstance(m, BaseMessage)), None)
        if junk is not None:
            msg = f"preserved_messages holds what is no message: {type(junk).__name__}"
            raise TypeError(msg)
    return list(messages)


def _summary_message(text: str) -> HumanMessage:
    return HumanMessage(
        _INTRODUCTION + text,
        id=str(uuid4()),
        additional_kwargs={_SUMMARY: True, "hide_from_ui": True},
    )


def _with_ids(messages: list[Any]) -> list[Any]:
    """Reducers of messages tell them by their ids."""
    if not all(isinstance(message, BaseMessage) for message in messages):
        return messages
    return MessageIds(frozenset()).given(messages)


def _key(message: Any) -> str:
    """What tells a message from others: its id, else its content."""
    found = message.get("id") if isinstance(message, dict) else getattr(message, "id", None)
    return found if isinstance(found, str) else repr(message)


def _estimate(messages: Sequence[Any]) -> int:
    if not all(isinstance(message, BaseMessage) for message in messages):
        return 0
    return count_tokens_approximately(messages)
