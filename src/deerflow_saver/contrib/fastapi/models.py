"""What goes over the wire."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import to_jsonable_python

from deerflow_saver._arguments import configurable

__all__ = [
    "BranchRequest",
    "BranchResponse",
    "CompactRequest",
    "CompactResponse",
    "HistoryRequest",
    "Problem",
    "StateResponse",
    "StateUpdateRequest",
    "ThreadId",
]

PRINTABLE = r"^[^\x00-\x1f\x7f/\\]+$"
ThreadId = Annotated[str, Path(min_length=1, max_length=255, pattern=PRINTABLE)]
NodeName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_. -]+$")]
Text = Annotated[str, Field(min_length=1, max_length=1024)]

_INTERNAL_METADATA = frozenset(
    {
        "counters_since_delta_snapshot",
        "created_at",
        "deerflow_checkpoint_channel_mode",
        "deerflow_delta_channels",
        "parents",
        "run_durations",
        "source",
        "updated_at",
        "writes",
    }
)


class Problem(BaseModel):
    """Why a request was not served."""

    detail: str | list[Any]
    error: str | None = None
    reason: str | None = None
    checkpoint_id: str | None = None
    head_id: str | None = None


class TaskResponse(BaseModel):
    """A task that is left to run."""

    id: str
    name: str
    error: str | None = None
    interrupts: list[Any] = Field(default_factory=list)


class StateResponse(BaseModel):
    """A materialised checkpoint."""

    thread_id: str
    checkpoint_id: str
    parent_checkpoint_id: str | None
    created_at: str | None
    values: dict[str, Any]
    metadata: dict[str, Any]
    next: list[str]
    tasks: list[TaskResponse]
    tasks_known: bool = Field(description="False where the graph could not be built.")

    @classmethod
    def of(cls, snapshot: Any, channels: list[str] | None = None) -> Self:
        """The response for a snapshot; `channels` selects values."""
        own, parent = configurable(snapshot.config), configurable(snapshot.parent_config)
        values = {
            name: value
            for name, value in snapshot.values.items()
            if channels is None or name in channels
        }
        metadata = {
            name: value
            for name, value in (snapshot.metadata or {}).items()
            if name not in _INTERNAL_METADATA
        }
        return cls(
            thread_id=str(own["thread_id"]),
            checkpoint_id=str(own["checkpoint_id"]),
            parent_checkpoint_id=parent.get("checkpoint_id"),
            created_at=snapshot.created_at or None,
            values=_plain(values),
            metadata=_plain(metadata),
            next=list(snapshot.next),
            tasks=[_task(task) for task in snapshot.tasks],
            tasks_known=getattr(snapshot, "tasks_known", True),
        )


class HistoryRequest(BaseModel):
    """A page of a thread's history, newest first."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(10, ge=1, le=100, strict=True)
    before: str | None = Field(None, description="Only checkpoints older than this one.")
    channels: list[str] | None = Field(None, description="Only these channels' values.")


class StateUpdateRequest(BaseModel):
    """Channels to set; they replace what a reducer has gathered."""

    model_config = ConfigDict(extra="forbid")

    values: dict[str, JsonValue]
    as_node: NodeName = "manual_state_update"
    checkpoint_id: str | None = Field(None, description="Build on this checkpoint.")


class BranchRequest(BaseModel):
    """A turn to continue from in a thread of its own."""

    model_config = ConfigDict(extra="forbid")

    message_ids: Annotated[list[Text], Field(min_length=1, max_length=100)] = Field(
        description="The answers of the turn: messages of type `ai`."
    )
    thread_id: Annotated[str, Field(min_length=1, max_length=255, pattern=PRINTABLE)] | None = (
        Field(None, description="The new thread's id; a random one if it is left out.")
    )


class BranchResponse(BaseModel):
    """The new thread."""

    thread_id: str
    checkpoint_id: str
    parent_thread_id: str
    parent_checkpoint_id: str
    base_checkpoint_id: str | None = Field(
        description="Where the turn began, in the parent thread; None if nothing was before it."
    )


class CompactRequest(BaseModel):
    """How much of a thread is to stay."""

    model_config = ConfigDict(extra="forbid")

    keep: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        strict=True,
        description="So many of the newest messages, about; by default the summariser's choice.",
    )
    force: bool = Field(
        default=True, strict=True, description="Even if the summariser's trigger is not reached."
    )


class CompactResponse(BaseModel):
    """What a compaction did."""

    model_config = ConfigDict(from_attributes=True)

    thread_id: str
    compacted: bool
    reason: str | None = Field(description="`not_enough_messages` if nothing was done.")
    removed_message_count: int
    preserved_message_count: int
    summary_updated: bool
    checkpoint_id: str | None = Field(description="The new head; None if nothing was done.")
    total_tokens: int = Field(description="What the messages took before; an estimate.")


def _task(task: Any) -> TaskResponse:
    return TaskResponse(
        id=str(task.id),
        name=str(task.name),
        error=None if task.error is None else repr(task.error),
        interrupts=[_plain(pause.value) for pause in task.interrupts],
    )


def _plain(value: Any) -> Any:
    return to_jsonable_python(
        value, bytes_mode="base64", inf_nan_mode="strings", serialize_unknown=True
    )
