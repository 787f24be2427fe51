"""Thread state in either channel mode: accessor, schemas, going back, rolling back, compaction."""

from __future__ import annotations

from deerflow_saver.errors import (
    UnknownStateFieldError,
)
from deerflow_saver.state.accessor import (
    CheckpointStateAccessor,
)
from deerflow_saver.state.ancestry import (
    checkpoint_configurable,
    checkpoint_messages,
    checkpoint_metadata,
    has_pending_tasks,
    is_duration_only_checkpoint,
    is_metadata_only_checkpoint,
)
from deerflow_saver.state.channels import (
    graph_reducer_channels,
    graph_state_schema,
    graph_writable_channels,
)
from deerflow_saver.state.compaction import (
    acompact_thread,
    compact_thread,
)
from deerflow_saver.state.compaction_errors import (
    ContextCompactionBusy,
    ContextCompactionDisabled,
    ContextCompactionFailed,
    ThreadCheckpointNotFoundError,
)
from deerflow_saver.state.compaction_types import (
    Compaction,
    CompactionRequest,
    ThreadCompactionResult,
)
from deerflow_saver.state.delta import (
    DELTA_MESSAGES_FIELD,
    ReducerDeltaChannel,
    delta_field,
    delta_messages_field,
)
from deerflow_saver.state.graph_cache import (
    CompiledGraphCache,
    resolve_checkpoint_graph_cache_max,
)
from deerflow_saver.state.lineage import (
    afind_base_before_message,
    afind_checkpoint_before_message,
    find_base_before_message,
    find_checkpoint_before_message,
    find_checkpoint_before_message_chronologically,
)
from deerflow_saver.state.lineage_errors import (
    CheckpointLineageError,
    CheckpointLineageIntegrityError,
    CheckpointParentMissingError,
)
from deerflow_saver.state.lock_errors import (
    ThreadLockError,
    ThreadLockLostError,
    ThreadLockReentryError,
    ThreadLockTimeoutError,
)
from deerflow_saver.state.locks import (
    Hold,
    ProcessThreadLock,
    ThreadLock,
)
from deerflow_saver.state.locks_postgres import (
    PostgresThreadLock,
)
from deerflow_saver.state.messages import (
    merge_message_writes,
)
from deerflow_saver.state.mutation import (
    build_state_mutation_graph,
)
from deerflow_saver.state.opening import (
    aopen_state_accessor,
    open_state_accessor,
)
from deerflow_saver.state.preparing import (
    PreparedRun,
    aprepare_run,
    prepare_run,
)
from deerflow_saver.state.raw import (
    RawCheckpointReadAccessor,
    RawCheckpointSnapshot,
)
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
from deerflow_saver.state.resume import (
    LinearizedResume,
    alinearize_resume,
    linearize_resume,
)
from deerflow_saver.state.resume_errors import (
    CheckpointResumeError,
)
from deerflow_saver.state.rollback import (
    RollbackPoint,
    acapture_rollback_point,
    arestore,
    capture_rollback_point,
    restore,
)
from deerflow_saver.state.rollback_errors import (
    RollbackError,
)
from deerflow_saver.state.schema import (
    adapt_state_schema_for_mode,
    get_thread_state_schema,
    normalize_middleware_state_schemas,
)
from deerflow_saver.state.thread_state import (
    THREAD_STATE_REDUCER_FIELDS,
    DeltaThreadState,
    ThreadState,
)

__all__ = [
    "DELTA_MESSAGES_FIELD",
    "THREAD_STATE_REDUCER_FIELDS",
    "CheckpointLineageError",
    "CheckpointLineageIntegrityError",
    "CheckpointParentMissingError",
    "CheckpointResumeError",
    "CheckpointStateAccessor",
    "Compaction",
    "CompactionRequest",
    "CompiledGraphCache",
    "ContextCompactionBusy",
    "ContextCompactionDisabled",
    "ContextCompactionFailed",
    "DeltaThreadState",
    "Hold",
    "LinearizedResume",
    "PostgresThreadLock",
    "PreparedRun",
    "ProcessThreadLock",
    "RawCheckpointReadAccessor",
    "RawCheckpointSnapshot",
    "ReducerDeltaChannel",
    "RollbackError",
    "RollbackPoint",
    "ThreadCheckpointNotFoundError",
    "ThreadCompactionResult",
    "ThreadLock",
    "ThreadLockError",
    "ThreadLockLostError",
    "ThreadLockReentryError",
    "ThreadLockTimeoutError",
    "ThreadState",
    "UnknownStateFieldError",
    "acapture_rollback_point",
    "acompact_thread",
    "adapt_state_schema_for_mode",
    "afind_base_before_message",
    "afind_checkpoint_before_message",
    "alinearize_resume",
    "aopen_state_accessor",
    "aprepare_run",
    "arestore",
    "build_state_mutation_graph",
    "capture_rollback_point",
    "checkpoint_configurable",
    "checkpoint_messages",
    "checkpoint_metadata",
    "compact_thread",
    "delta_field",
    "delta_messages_field",
    "find_base_before_message",
    "find_checkpoint_before_message",
    "find_checkpoint_before_message_chronologically",
    "get_thread_state_schema",
    "graph_reducer_channels",
    "graph_state_schema",
    "graph_writable_channels",
    "has_pending_tasks",
    "is_duration_only_checkpoint",
    "is_metadata_only_checkpoint",
    "linearize_resume",
    "merge_artifacts",
    "merge_delegations",
    "merge_goal",
    "merge_message_writes",
    "merge_promoted",
    "merge_sandbox",
    "merge_skill_context",
    "merge_todos",
    "merge_viewed_images",
    "normalize_middleware_state_schemas",
    "open_state_accessor",
    "prepare_run",
    "resolve_checkpoint_graph_cache_max",
    "restore",
]
