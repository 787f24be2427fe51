"""`InMemorySaver` drops the writes of the checkpoint that seeds a delta history.

Its walk, before langgraph-checkpoint 4.2.0, takes a plain value (stored while the channel
was an ordinary one) to include the writes filed under the same checkpoint. They make its
child, so the first write after a thread turned from full to delta is lost. The base
class's walk is right, and finds the newest checkpoint if the config names none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch

__all__ = ["DEFECT"]

_MEMORY = "langgraph.checkpoint.memory"


def _probe() -> Finding:
    """Full to delta: `a` in the seed, then the writes `b` and `c`; with and without an id."""
    from langgraph.checkpoint.memory import InMemorySaver

    saver = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "probe", "checkpoint_ns": ""}}
    config = _put(saver, thread, 0, ["a"])
    for step, write in ((1, "b"), (2, "c")):
        saver.put_writes(config, [("log", [write])], f"task-{step}")
        config = _put(saver, config, step)
    found = [_replayed(saver, target) for target in (config, thread)]
    wrong = any(values != [["a"], ["b"], ["c"]] for values in found)
    return Finding(wrong, f"['a'], ['b'], ['c'] read by id {found[0]}, without {found[1]}")


def _put(saver: Any, parent: Any, step: int, value: list[str] | None = None) -> Any:
    from langgraph.checkpoint.base import empty_checkpoint

    checkpoint = empty_checkpoint()
    checkpoint["channel_versions"] = {"log": str(step)}
    if value is None:
        return saver.put(parent, checkpoint, {"step": step}, {})
    checkpoint["channel_values"] = {"log": value}
    return saver.put(parent, checkpoint, {"step": step}, {"log": str(step)})


def _replayed(saver: Any, config: Any) -> list[Any]:
    history = saver.get_delta_channel_history(config=config, channels=["log"])["log"]
    return [history.get("seed"), *(value for _, _, value in history["writes"])]


def _walk(
    _wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    return BaseCheckpointSaver.get_delta_channel_history(instance, *args, **kwargs)


def _awalk(
    _wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    return BaseCheckpointSaver.aget_delta_channel_history(instance, *args, **kwargs)


_TAKES = ("config", "channels")

DEFECT = Defect(
    slug="memory-history-folding",
    symptom="the first delta write after a thread turned from full to delta is lost",
    upstream=("langgraph#8384",),
    distribution="langgraph-checkpoint",
    probe=_probe,
    remedy=patch(
        Site(_MEMORY, "InMemorySaver.get_delta_channel_history", _walk, takes=_TAKES),
        Site(_MEMORY, "InMemorySaver.aget_delta_channel_history", _awalk, takes=_TAKES),
        text="Update langgraph-checkpoint to 4.2.0 or newer.",
    ),
    severity="loses",
    savers=frozenset({"memory"}),
)
