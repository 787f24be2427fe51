"""The plan of a linearised resume: read the head and the selected checkpoint, then one `put`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import Plan
from deerflow_saver.guard.policy import signal_of
from deerflow_saver.state.linear_copy import (
    Source,
    delta_names,
    hydrated,
    linear_copy,
    visible,
)
from deerflow_saver.state.namespaces import namespaces_since
from deerflow_saver.state.questions import (
    Questions,
    Unanswerable,
    questions_of,
    refuse_idle_answer,
    translated,
)
from deerflow_saver.state.resume_errors import resume_error

__all__ = ["RESUMED_FROM", "UNKNOWN", "Backwards", "LinearizedResume", "going_back"]

_SELECTORS = frozenset({"checkpoint_id", "checkpoint_map"})
UNKNOWN = object()
"""Stands for an input that the caller does not tell."""
_NO_QUESTIONS = Questions({}, {})
RESUMED_FROM = "deerflow_resumed_from"
"""In the new checkpoint's metadata: the checkpoint whose content it has."""


@dataclass(frozen=True, slots=True)
class LinearizedResume:
    """What a thread was taken back to.

    Attributes:
        config: addresses the new head.
        checkpoint_id: the checkpoint whose state and tasks the new head has.
        head_id: the head until now, which is the new one's parent.
        values: the new head's state.
        input: the input to go on with: as given, or with the interrupts' new ids.
        interrupt_ids: from the ids of the interrupts that waited there to those that wait now.

    """

    config: RunnableConfig
    checkpoint_id: str
    head_id: str
    values: Mapping[str, Any]
    input: Any
    interrupt_ids: Mapping[str, str]

    @property
    def messages(self) -> list[Any]:
        """The state's `messages`; empty if it has none."""
        found = self.values.get("messages")
        return list(found) if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Backwards:
    """Where a thread is to go back to, and what is to be run from there."""

    graph: Any
    saver: Any
    """Conditional on what is read through it."""
    config: RunnableConfig
    """Selects the checkpoint, and carries the mode."""
    input: Any = UNKNOWN
    run_id: str | None = None

    @property
    def thread_id(self) -> str:
        """The thread."""
        return str(configurable(self.config)["thread_id"])

    @property
    def checkpoint_id(self) -> str:
        """The selected checkpoint."""
        return str(configurable(self.config)["checkpoint_id"])

    @property
    def asks_again(self) -> bool:
        """Whether interrupts are to wait for an answer, as far as is known of the input.

        Another input reruns the tasks that asked, as after a fork.
        """
        return self.input is UNKNOWN or getattr(self.input, "resume", None) is not None

    def at(self, checkpoint_id: str | None) -> RunnableConfig:
        """The config of another checkpoint of the thread; None: of the head."""
        names = {k: v for k, v in configurable(self.config).items() if k not in _SELECTORS}
        names["checkpoint_ns"] = ""
        if checkpoint_id is not None:
            names["checkpoint_id"] = checkpoint_id
        return {**self.config, "configurable": names}

    def refuse(self, what: str, why: str) -> NoReturn:
        """Raise the error that the run could not `what`."""
        raise resume_error(
            what, why, run_id=self.run_id, thread_id=self.thread_id,
            checkpoint_id=self.checkpoint_id,
        )  # fmt: skip


def going_back(asked: Backwards) -> Plan[LinearizedResume | None]:
    """Put a copy of the selected checkpoint on top of the head; None if that is the head.

    The copy's pending writes go first: until the checkpoint itself is there nobody reads them.
    """
    head = yield "get_tuple", asked.at(None)
    if head is not None and head.checkpoint["id"] == asked.checkpoint_id:
        return None
    row = yield "get_tuple", asked.at(asked.checkpoint_id)
    specs = _specs(asked)
    if row is None or head is None:
        asked.refuse(*_unreadable(asked, "It is not stored"))
    yield from _refuse_moved_subgraphs(asked)
    source = yield from hydrated(specs, row)
    _refuse_without_messages(asked, source)
    _refuse_unknown_channels(asked, specs, row, head)
    copied = linear_copy(source, head, specs, asked.graph.nodes, _version(asked, row, head))
    metadata = {
        "source": "fork",
        "step": head.metadata.get("step", -1) + 1,
        "parents": {},
        RESUMED_FROM: asked.checkpoint_id,
    }
    questions = _questions(asked, row, (copied, metadata))
    given = _input(asked, questions, (copied, metadata))
    yield "check", None
    for task_id, writes in questions.writes.items():
        yield "put_writes", (asked.at(copied["id"]), writes, task_id)
    config = yield (
        "put",
        (asked.at(head.checkpoint["id"]), copied, metadata, copied["channel_versions"]),
    )
    return LinearizedResume(
        config,
        asked.checkpoint_id,
        head.checkpoint["id"],
        visible(source),
        given,
        dict(questions.ids),
    )


def _unreadable(asked: Backwards, why: str) -> tuple[str, str]:
    return f"materialize resume checkpoint {asked.checkpoint_id}", f"{why}: select another one"


def _specs(asked: Backwards) -> Mapping[str, Any]:
    """The graph's channel table."""
    specs = getattr(asked.graph, "channels", None)
    if not isinstance(specs, Mapping) or not specs or not hasattr(asked.graph, "nodes"):
        asked.refuse(
            "inspect the state schema for checkpoint resume",
            "The graph has no channel table: use the compiled graph that the thread is run with.",
        )
    return specs


def _refuse_without_messages(asked: Backwards, source: Source) -> None:
    channel = source.channels.get("messages")
    if channel is not None and not (channel.is_available() and isinstance(channel.get(), list)):
        asked.refuse(*_unreadable(asked, "It has no list of messages"))


def _refuse_unknown_channels(
    asked: Backwards, specs: Mapping[str, Any], row: Any, head: Any
) -> None:
    """A delta channel that the graph does not know has no value to be copied."""
    known: set[str] = set()
    for shown in (row, head):
        known |= signal_of(shown.metadata, shown.checkpoint["channel_values"]).channels
    lost = sorted(known - set(delta_names(specs)) - set(row.checkpoint["channel_values"]))
    if lost:
        asked.refuse(
            "inspect the state schema for checkpoint resume",
            f"The graph does not have the thread's delta channel {', '.join(lost)}, so its value "
            "cannot be taken back: use the graph that wrote it.",
        )


def _refuse_moved_subgraphs(asked: Backwards) -> Plan[None]:
    """A subgraph with a memory of its own would stay where it is."""
    moved = yield from namespaces_since(asked.at(None), asked.checkpoint_id)
    stateful = sorted(name for name in moved if name and ":" not in name)
    if stateful:
        asked.refuse(
            "take its subgraphs back with it",
            f"Subgraph {', '.join(stateful)} has gone on since, and keeps its state by itself "
            "(checkpointer=True). Run the thread in full mode, or compile the subgraph without a "
            "checkpointer of its own.",
        )


def _version(asked: Backwards, row: Any, head: Any) -> Any:
    """A channel version newer than all of both rows."""
    versions = [v for r in (row, head) for v in r.checkpoint["channel_versions"].values()]
    return asked.saver.get_next_version(max(versions, default=None), None)


def _questions(asked: Backwards, row: Any, new: tuple[Any, Any]) -> Questions:
    if not asked.asks_again:
        return _NO_QUESTIONS
    old = {**new[0], "id": row.checkpoint["id"]}, row.metadata
    try:
        return questions_of(asked.graph, row.pending_writes or (), old, new, asked.saver.serde)
    except Unanswerable as error:
        _refuse_answer(asked, str(error))


def _input(asked: Backwards, questions: Questions, new: tuple[Any, Any]) -> Any:
    if asked.input is UNKNOWN:
        return None
    try:
        if not questions.ids:
            refuse_idle_answer(asked.graph, asked.input, new, asked.saver.serde)
        return translated(asked.input, questions)
    except Unanswerable as error:
        _refuse_answer(asked, str(error))


def _refuse_answer(asked: Backwards, why: str) -> NoReturn:
    asked.refuse(
        f"answer the interrupts of checkpoint {asked.checkpoint_id}",
        f"{why[:1].upper()}{why[1:]}. Rerun its tasks instead, which ask again (input=None), or "
        "run the thread in full mode.",
    )
