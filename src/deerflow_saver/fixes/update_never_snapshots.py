"""Updates do not count towards the next snapshot, so a thread of updates never gets one."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from deerflow_saver.fixes._fix import Defect, Finding, InWrapper

__all__ = ["DEFECT"]

_UPDATES = 4


def _probe() -> Finding:
    """Twice as many updates as the channel's frequency asks for."""
    from langgraph.channels.delta import DeltaChannel
    from langgraph.checkpoint.serde.types import _DeltaSnapshot

    from deerflow_saver.fixes._scenes import Saver, compiled, extend, thread

    channel: Any = DeltaChannel(extend, snapshot_frequency=_UPDATES // 2)
    schema: Any = TypedDict("schema", {"log": Annotated[list[str], channel]})
    saver = Saver()
    graph = compiled({"node": lambda _state: {}}, schema=schema, saver=saver)
    graph.invoke({"log": ["in"]}, thread())
    for i in range(_UPDATES):
        graph.update_state(thread(), {"log": [f"u{i}"]}, as_node="node")
    rows = [row for row in saver.list(thread()) if row.metadata.get("source") == "update"]
    stored = sum(
        isinstance(r.checkpoint["channel_values"].get("log"), _DeltaSnapshot) for r in rows
    )
    return Finding(not stored, f"{_UPDATES} updates, frequency {_UPDATES // 2}: {stored} snapshots")


DEFECT = Defect(
    slug="update-never-snapshots",
    symptom="threads that are only updated are read through every update ever made",
    upstream=("langgraph#8315",),
    distribution="langgraph",
    probe=_probe,
    remedy=InWrapper("The cache keeps what was walked: a read walks only what is new."),
    severity="slow",
)
