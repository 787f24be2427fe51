"""Going back to an older checkpoint without a fork.

In delta mode a child of an older checkpoint shares that checkpoint's writes with the branch it
leaves. So the older checkpoint's content is put on top of the head instead, in one conditional
write, and the run goes on from there: the same state, the same tasks, and one line of ancestors.
"""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.runnables import RunnableConfig

from deerflow_saver._arguments import configurable
from deerflow_saver._plan import adrive, drive
from deerflow_saver.channel_mode.marker import with_checkpoint_mode
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state.compiled import refuse_graph
from deerflow_saver.state.conditional import conditional
from deerflow_saver.state.fork_probe import forks_are_right
from deerflow_saver.state.going_back import UNKNOWN, Backwards, LinearizedResume, going_back
from deerflow_saver.state.locks import Hold, ThreadLock, aholding, holding
from deerflow_saver.state.resume_errors import resume_error
from deerflow_saver.state.steps import RUNTIME, async_steps, sync_steps

__all__ = [
    "LinearizedResume",
    "Strategy",
    "alinearize_resume",
    "linearize_resume",
    "selected_checkpoint",
]

Strategy = Literal["linear", "fork"]
STRATEGIES: tuple[str, ...] = ("linear", "fork")


def linearize_resume(
    accessor: Any,
    config: RunnableConfig,
    *,
    input: Any = UNKNOWN,  # noqa: A002 - LangGraph's name for it
    run_id: str | None = None,
    lock: ThreadLock | Hold | None = None,
    strategy: Strategy = "linear",
) -> LinearizedResume | None:
    """Take a delta thread back to the checkpoint that `config` selects, before a run of it.

    The new head has that checkpoint's state and tasks, waiting interrupts included. On success
    `checkpoint_id` and `checkpoint_map` are taken out of `config` in place, so that a run with
    it goes on from the head.

    Nothing is read, nothing is done, and the answer is None if the accessor has no saver or is
    in full mode, or `config` selects no checkpoint of the root graph. If it selects the head,
    that is all that is read.

    Args:
        accessor: a `CheckpointStateAccessor`.
        config: the run's config.
        input: what is to be run. A `Command` that answers interrupts is checked against the
            ones that wait there; with any other input the tasks that asked run again and ask
            again, as after a fork. Left out: interrupts wait for whatever comes.
        run_id: names the run in errors.
        lock: the thread's lock, or the caller's hold of it; by default the process's lock.
        strategy: `"fork"` leaves the fork to LangGraph if its own forks are right, which is
            tried; a guard that refuses forks will refuse that one as well.

    Raises:
        CheckpointResumeError: the state or the tasks cannot be taken back.
        RefusedWriteError: somebody else moved the head meanwhile.
        ThreadLockError: the lock could not be had or kept.
        InvalidConfigError: there is no such strategy, or `accessor` is a graph.

    Whatever it raises, the thread is as before, and so is `config`.

    """
    asked = _asked(accessor, config, input, strategy, run_id)
    if asked is None:
        return None
    with holding(lock, asked.thread_id, _owner(run_id)) as hold:
        done = drive(going_back(asked), sync_steps(asked.saver, hold))
    return _without_selector(config, done)


async def alinearize_resume(
    accessor: Any,
    config: RunnableConfig,
    *,
    input: Any = UNKNOWN,  # noqa: A002 - LangGraph's name for it
    run_id: str | None = None,
    lock: ThreadLock | Hold | None = None,
    strategy: Strategy = "linear",
) -> LinearizedResume | None:
    """`linearize_resume` on the async face."""
    asked = _asked(accessor, config, input, strategy, run_id)
    if asked is None:
        return None
    async with aholding(lock, asked.thread_id, _owner(run_id)) as hold:
        done = await adrive(going_back(asked), async_steps(asked.saver, hold))
    return _without_selector(config, done)


def _goes_back(accessor: Any, config: RunnableConfig) -> bool:
    refuse_graph(accessor)
    if accessor.checkpointer is None or accessor.mode != "delta":
        return False
    return selected_checkpoint(config) is not None


def selected_checkpoint(config: RunnableConfig) -> str | None:
    """The checkpoint of the root graph that a run with `config` begins at; None for the head.

    A map counts for more than an id, but only if a namespace is named as well; that of a
    subgraph is not where a run begins (`PregelLoop.__init__`).
    """
    names = configurable(config)
    places, checkpoint_ns = names.get("checkpoint_map") or {}, names.get("checkpoint_ns")
    found = None if checkpoint_ns else names.get("checkpoint_id")
    if checkpoint_ns is not None and "" in places:
        found = places[""]
    return found if isinstance(found, str) and found else None


def _leaves_it(config: RunnableConfig, strategy: Strategy, run_id: str | None) -> bool:
    """Whether the fork is LangGraph's to make."""
    if strategy not in STRATEGIES:
        msg = f"strategy must be 'linear' or 'fork', got {strategy!r}"
        raise InvalidConfigError(msg)
    if strategy == "linear" or forks_are_right():
        return strategy == "fork"
    names = configurable(config)
    raise resume_error(
        "fork its thread",
        "The forks of delta threads that this LangGraph makes read back wrong: use the linear "
        "strategy, or a newer LangGraph.",
        run_id=run_id,
        thread_id=str(names.get("thread_id")),
        checkpoint_id=str(selected_checkpoint(config)),
    )


def _asked(
    accessor: Any, config: RunnableConfig, given: Any, strategy: Strategy, run_id: str | None
) -> Backwards | None:
    """What to take back; None if nothing is, or if the fork is LangGraph's to make."""
    if not _goes_back(accessor, config) or _leaves_it(config, strategy, run_id):
        return None
    names = configurable(config)
    if names.get("thread_id") is None:
        msg = f"config must name the thread of the checkpoint it selects; got {config!r}"
        raise InvalidConfigError(msg)
    elsewhere = [name for name in names.get("checkpoint_map") or () if name]
    if elsewhere:
        raise resume_error(
            "take a subgraph back by itself",
            f"checkpoint_map selects a checkpoint of {', '.join(elsewhere)} as well: select one of "
            "the root graph alone.",
            run_id=run_id,
            thread_id=str(names["thread_id"]),
            checkpoint_id=str(selected_checkpoint(config)),
        )
    # With the msgpack types that the graph's own reads and writes allow
    allow = getattr(accessor.graph, "_apply_checkpointer_allowlist", lambda saver: saver)
    saver = conditional(allow(accessor.checkpointer))
    prepared = with_checkpoint_mode(_without_run(config), "delta")
    prepared["configurable"][RUNTIME] = object()
    prepared["configurable"]["checkpoint_id"] = selected_checkpoint(config)
    return Backwards(accessor.graph, saver, prepared, given, run_id)


def _without_run(config: RunnableConfig) -> RunnableConfig:
    """The config without the run's id, for a checkpoint that is not the run's own.

    A run that finds its id in the head's metadata takes itself for resumed, and leaves its
    input out (`PregelLoop._first`).
    """
    parts: dict[str, Any] = {
        part: {name: value for name, value in names.items() if name != "run_id"}
        for part in ("configurable", "metadata")
        if isinstance(names := config.get(part), dict)
    }
    return {**config, **parts}  # type: ignore[typeddict-item]


def _owner(run_id: str | None) -> str | None:
    return None if run_id is None else f"run {run_id}"


def _without_selector(
    config: RunnableConfig, done: LinearizedResume | None
) -> LinearizedResume | None:
    if done is not None:
        for name in ("checkpoint_id", "checkpoint_map"):
            config["configurable"].pop(name, None)
    return done
