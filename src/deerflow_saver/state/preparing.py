"""`prepare_run`: from a config that selects a checkpoint to what can be invoked safely."""

from __future__ import annotations

from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.accessor import CheckpointStateAccessor
from deerflow_saver.state.compiled import refuse_uncompiled
from deerflow_saver.state.linear_copy import delta_names
from deerflow_saver.state.locks import Hold, ThreadLock
from deerflow_saver.state.resume import (
    alinearize_resume,
    linearize_resume,
    selected_checkpoint,
)

__all__ = ["PreparedRun", "aprepare_run", "prepare_run"]


class PreparedRun(NamedTuple):
    """What to invoke: `graph.invoke(*prepared)`."""

    input: Any
    config: RunnableConfig


def prepare_run(
    graph: Any,
    config: RunnableConfig,
    input: Any,  # noqa: A002 - LangGraph's name for it
    *,
    lock: ThreadLock | Hold | None = None,
) -> PreparedRun:
    """What to invoke so that `graph.invoke(input, config)` means the same without a fork.

    A run that selects no checkpoint, or the head, comes back as it is, and so does any run of
    a graph without delta channels. Else the thread is taken back (`linearize_resume`), and the
    run goes on from its head; an answer to interrupts is given their new ids.

    Args:
        graph: a compiled graph with a saver.
        config: the run's config, which stays as it is.
        input: a new input, None, or a `Command`.
        lock: the thread's lock, or the caller's hold of it; by default the process's lock.

    Raises:
        CheckpointResumeError: the state or the tasks cannot be taken back.
        RefusedWriteError: somebody else moved the head meanwhile.
        ThreadLockError: the lock could not be had or kept.
        InvalidConfigError: the graph has no saver to go back in, or is not compiled.

    """
    accessor, copied = _prepared(graph, config)
    if accessor is None:
        return PreparedRun(input, config)
    done = linearize_resume(accessor, copied, input=input, lock=lock)
    return PreparedRun(input, config) if done is None else PreparedRun(done.input, copied)


async def aprepare_run(
    graph: Any,
    config: RunnableConfig,
    input: Any,  # noqa: A002 - LangGraph's name for it
    *,
    lock: ThreadLock | Hold | None = None,
) -> PreparedRun:
    """`prepare_run` on the async face."""
    accessor, copied = _prepared(graph, config)
    if accessor is None:
        return PreparedRun(input, config)
    done = await alinearize_resume(accessor, copied, input=input, lock=lock)
    return PreparedRun(input, config) if done is None else PreparedRun(done.input, copied)


def _prepared(
    graph: Any, config: RunnableConfig
) -> tuple[CheckpointStateAccessor | None, RunnableConfig]:
    """An accessor where the run may go back, and a copy of the config to do it with."""
    refuse_uncompiled(graph)
    names = dict(configurable(config))
    if selected_checkpoint(config) is None or not delta_names(getattr(graph, "channels", {})):
        return None, config
    if graph.checkpointer is None or isinstance(graph.checkpointer, bool):
        msg = "the config selects a checkpoint, and the graph has no saver: compile it with one"
        raise InvalidConfigError(msg)
    copied: RunnableConfig = {**config, "configurable": names}
    return CheckpointStateAccessor(graph, graph.checkpointer, "delta"), copied
