"""What a compaction is asked, what a summariser is, and what comes of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable

__all__ = ["Asked", "Compaction", "CompactionRequest", "Summarize", "ThreadCompactionResult"]

_RUNTIME = "__pregel_runtime"
"""LangGraph's key of a run, by which a guard knows that reads and writes belong together."""


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What a summariser is asked; all of it is the summariser's to change.

    Attributes:
        thread_id: the thread.
        checkpoint_id: its head, whose state this is.
        values: the state, as `get_state` shows it.
        messages: all messages, oldest first.
        to_summarize: those that will go.
        to_preserve: those that will stay.
        previous_summary: the summary that the state has a channel for; empty if there is none.
        keep: how many of the newest are to stay; None if the caller did not say.
        force: whether to summarise even if a trigger of the summariser's own is not reached.
        context: what the caller passed on, and the thread's id.

    """

    thread_id: str
    checkpoint_id: str
    values: Mapping[str, Any]
    messages: list[Any]
    to_summarize: list[Any]
    to_preserve: list[Any]
    previous_summary: str
    keep: int | None
    force: bool
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a summariser answers that chooses itself what stays.

    Attributes:
        preserved_messages: what the messages' channel is to hold, in order.
        summary_text: the summary, kept as that of a plain text is; empty if the messages hold it.
        total_tokens: how many tokens the messages took before; None for an estimate.
        values: other channels to set.

    """

    preserved_messages: Sequence[Any]
    summary_text: str = ""
    total_tokens: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


Answer = str | Compaction | None
Summarize = Callable[[CompactionRequest], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class ThreadCompactionResult:
    """What a compaction did.

    Attributes:
        thread_id: the thread.
        compacted: whether a checkpoint was stored.
        reason: why not: `"not_enough_messages"`.
        removed_message_count: messages that are in the state no more.
        preserved_message_count: messages of before that still are.
        summary_updated: whether the state has another summary now.
        checkpoint_id: the new head.
        total_tokens: what the messages took before; an estimate unless the summariser told.

    """

    thread_id: str
    compacted: bool
    reason: str | None = None
    removed_message_count: int = 0
    preserved_message_count: int = 0
    summary_updated: bool = False
    checkpoint_id: str | None = None
    total_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be compacted, and how."""

    graph: Any
    saver: Any
    """Conditional on what is read through it, in full mode too."""
    config: RunnableConfig
    """Names the thread, and carries the mode."""
    full: bool
    channel: str
    summary_channel: str | None
    keep: int | None
    chooses: bool
    """Whether the summariser chooses what stays, so that it is always asked."""
    force: bool
    context: Mapping[str, Any]

    @property
    def thread_id(self) -> str:
        """The thread."""
        return str(configurable(self.config)["thread_id"])

    def once(self) -> RunnableConfig:
        """The config of one attempt: what it reads is what its write depends on."""
        return {**self.config, "configurable": {**configurable(self.config), _RUNTIME: object()}}
