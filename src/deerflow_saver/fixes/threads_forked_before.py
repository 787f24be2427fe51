"""Threads forked by an older LangGraph, or past the guard, stay wrong.

Nothing that is stored says which child of the forked checkpoint consumed which write.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """Rows as an older release left them: one parent, two children, both their writes."""
    from langgraph.checkpoint.base.id import uuid6

    from deerflow_saver.fixes._scenes import Saver, agreement, compiled, said

    saver = Saver()
    root: Any = {"configurable": {"thread_id": "probe", "checkpoint_ns": ""}}

    def put(parent: Any, step: int, version: str, ref: list[str]) -> Any:
        checkpoint: Any = {
            "v": 4, "id": str(uuid6()), "ts": "", "versions_seen": {}, "updated_channels": None,
            "channel_values": {"ref": ref}, "channel_versions": {"log": version, "ref": version},
        }  # fmt: skip
        return saver.put(parent, checkpoint, {"step": step}, {"log": version, "ref": version})

    first = put(root, -1, "0", [])
    saver.put_writes(first, [("log", ["in"])], "t0")
    base = put(first, 0, "1", ["in"])
    for task, word in (("ta", "A"), ("tb", "B")):
        saver.put_writes(base, [("log", [word])], task)
    graph = compiled({"node": lambda _state: said("out")}, saver=saver)
    left, right = put(base, 1, "2", ["in", "A"]), put(base, 1, "3", ["in", "B"])
    return agreement(one=graph.get_state(left).values, other=graph.get_state(right).values)


DEFECT = Defect(
    slug="threads-forked-before",
    symptom="threads forked by an older LangGraph or past the guard may show both branches' writes",
    upstream=("langgraph#8443",),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "An older LangGraph forked such threads, or a guard of 'observe' or 'off' let it happen; "
        "`deerflow-saver doctor --db` and `fence check` count them. Compare the branches, and put "
        "one right by an update_state at its head with an Overwrite of the value it should have: "
        "what was mixed cannot be told apart again."
    ),
    severity="corrupts",
)
