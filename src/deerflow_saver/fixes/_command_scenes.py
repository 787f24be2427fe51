"""Probes of `Command`s that address a checkpoint the thread has left, or a finished step."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, Overwrite, interrupt

from deerflow_saver.fixes._fix import Finding
from deerflow_saver.fixes._scenes import agreement, compiled, said, thread

__all__ = ["finished_task_updated", "left_checkpoint_answered", "overwritten_by_command"]


def _ask(_state: Any) -> Any:
    return said("ans-" + interrupt("q"))


def left_checkpoint_answered() -> Finding:
    """Late answers at a checkpoint that the thread has left, read on each branch.

    `answer`: a bare one. `update`: one with an update. `paused`: under exit durability,
    one of two questions is answered.
    """
    read: dict[str, Any] = {}
    graph = compiled({"ask": _ask})
    for name, late in (("answer", Command(resume="B")), ("update", _with_update())):
        config = thread(name)
        graph.invoke(said("in1"), config)
        paused = graph.get_state(config).config
        graph.invoke(said("in2") if name == "answer" else Command(resume="A"), config)
        other = graph.get_state(config).config
        graph.invoke(late, paused)
        read[name] = graph.get_state(other).values
        read[f"{name}, its own branch"] = graph.get_state(config).values
    graph = compiled({"one": _ask, "two": _ask})
    config = thread("paused")
    graph.invoke(said("in1"), config, durability="exit")
    paused = graph.get_state(config)
    graph.invoke(said("in2"), config, durability="exit")
    other = graph.get_state(config).config
    graph.invoke(Command(resume={paused.interrupts[0].id: "A"}), paused.config, durability="exit")
    read["paused"] = graph.get_state(other).values
    return agreement(**read)


def _with_update() -> Command[Any]:
    return Command(resume="B", update=said("U"))


def finished_task_updated() -> Finding:
    """`update_state` on the head as a task that finished without a delta write."""
    graph = compiled({"done": lambda _state: {"other": 1}, "ask": _ask})
    config = thread()
    graph.invoke(said("in"), config)
    graph.update_state(config, said("U"), as_node="done")
    return agreement(reload=graph.get_state(config).values)


def overwritten_by_command() -> Finding:
    """An `Overwrite` and another write in `Command`s on one head."""
    graph = compiled({"node": lambda _state: said("out")})
    config = thread()
    graph.invoke(said("in"), config)
    graph.invoke(Command(update={"log": Overwrite(["R"]), "ref": Overwrite(["R"])}), config)
    graph.invoke(Command(update=said("s"), goto="node"), config)
    return agreement(reload=graph.get_state(config).values)
