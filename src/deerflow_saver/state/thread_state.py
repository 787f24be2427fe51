"""The state of a thread of a DeerFlow agent, in both channel modes."""

# No postponed annotations here: a TypedDict reads NotRequired out of them when it is made.

from typing import Annotated, Any, Generic, Literal, NotRequired, Required, TypeVar

from langchain_core.messages import AnyMessage
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from deerflow_saver.state.delta import delta_messages_field
from deerflow_saver.state.reducers import (
    merge_artifacts,
    merge_delegations,
    merge_goal,
    merge_promoted,
    merge_sandbox,
    merge_skill_context,
    merge_todos,
    merge_viewed_images,
)

try:
    from langchain.agents import AgentState
except ImportError:
    # Without langchain there is no create_agent to hide `jump_to` from: the channels are enough.
    ResponseT = TypeVar("ResponseT")

    class AgentState(TypedDict, Generic[ResponseT]):  # type: ignore[no-redef]
        """The channels of langchain's agents."""

        messages: Required[Annotated[list[AnyMessage], add_messages]]
        jump_to: NotRequired[Annotated[Literal["tools", "model", "end"] | None, EphemeralValue]]
        structured_response: NotRequired[ResponseT]


__all__ = [
    "THREAD_STATE_REDUCER_FIELDS",
    "BackgroundTaskState",
    "DelegationEntry",
    "DeltaThreadState",
    "GoalState",
    "PromotedTools",
    "SandboxState",
    "SkillEntry",
    "ThreadDataState",
    "ThreadState",
    "ViewedImageData",
]


class SandboxState(TypedDict):
    """The sandbox a thread's tools run in."""

    sandbox_id: NotRequired[str | None]


class ThreadDataState(TypedDict):
    """Where a thread's files are."""

    workspace_path: NotRequired[str | None]
    uploads_path: NotRequired[str | None]
    outputs_path: NotRequired[str | None]


class BackgroundTaskState(TypedDict):
    """A task that goes on beside the conversation."""

    task_id: str
    task_name: str
    status: str
    updated_at: str


class ViewedImageData(TypedDict):
    """An image the model has been shown."""

    mime_type: str
    size: int
    actual_path: str


class PromotedTools(TypedDict):
    """Tools taken from a catalog; another catalog's hash makes them void."""

    catalog_hash: str
    names: list[str]


class DelegationEntry(TypedDict):
    """One piece of work handed to another agent."""

    id: str
    run_id: NotRequired[str]
    description: str
    subagent_type: str
    status: str
    result_brief: NotRequired[str]
    result_sha256: NotRequired[str]
    result_ref: NotRequired[str]
    stop_reason: NotRequired[str]
    created_at: str


class SkillEntry(TypedDict):
    """A skill the agent has read; `loaded_at` counts messages."""

    name: str
    path: str
    description: str
    loaded_at: int


class GoalState(TypedDict):
    """What the thread is to reach, and how far it has been driven."""

    objective: str
    status: Literal["active"]
    created_at: str
    updated_at: str
    continuation_count: int
    max_continuations: int
    no_progress_count: int
    max_no_progress_continuations: int
    last_evaluation: NotRequired[dict[str, Any] | None]


class ThreadState(AgentState[Any]):
    """The state in full mode: every checkpoint stores every channel whole."""

    sandbox: Annotated[NotRequired[SandboxState | None], merge_sandbox]
    thread_data: NotRequired[ThreadDataState | None]
    title: NotRequired[str | None]
    artifacts: Annotated[list[str], merge_artifacts]
    todos: Annotated[list[Any] | None, merge_todos]
    goal: Annotated[GoalState | None, merge_goal]
    uploaded_files: NotRequired[list[dict[str, Any]] | None]
    viewed_images: Annotated[dict[str, ViewedImageData], merge_viewed_images]
    promoted: Annotated[PromotedTools | None, merge_promoted]
    delegations: Annotated[list[DelegationEntry], merge_delegations]
    skill_context: Annotated[list[SkillEntry], merge_skill_context]
    summary_text: NotRequired[str | None]
    background_tasks: NotRequired[list[BackgroundTaskState]]


class DeltaThreadState(ThreadState):
    """The state in delta mode at the default cadence: messages are stored as writes."""

    messages: delta_messages_field()  # type: ignore[valid-type]


THREAD_STATE_REDUCER_FIELDS = frozenset(
    {
        "messages",
        "sandbox",
        "artifacts",
        "todos",
        "goal",
        "viewed_images",
        "promoted",
        "delegations",
        "skill_context",
    }
)
"""The channels of `ThreadState` whose value only an `Overwrite` replaces."""
