"""Postgres: a stored None of an ordinary channel is passed over when the channel turns delta.

Savers since 3.1.2 tell a value kept in the checkpoint from an absent one by whether it is
None (`BasePostgresSaver._ingest_stage1_page`), and walk on to an older value.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding
from deerflow_saver.walks.habits import installed
from deerflow_saver.walks.scenes import apart

__all__ = ["DEFECT"]

_CHANNEL = "log"
_CONFIG = {"configurable": {"thread_id": "probe", "checkpoint_ns": "", "checkpoint_id": "3"}}


def _rows() -> Any:
    """An older value at 1, None at 2, one write since, and the target 3."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from deerflow_saver.walks.imitation import Rows

    class WithNone(Rows):
        def _page(self, sql: str, bound: str | None, size: int) -> list[dict[str, Any]]:
            page = super()._page(sql, bound, size)
            # The key is there, and its value is JSON's null
            return [{**row, "hs_0": row["checkpoint_id"] == "2"} for row in page]

    dumps = JsonPlusSerializer().dumps_typed
    kind, blob = dumps("since")
    write = {"type": kind, "blob": blob, "task_id": "task", "task_path": "", "idx": 0}
    parents: dict[str, str | None] = {"1": None, "2": "1", "3": "2"}
    return WithNone(parents, {"2": [write]}, {"1": dumps("older")})


def _history(cls: Any) -> Any:
    from deerflow_saver.walks.imitation import AsyncImitation, Imitation

    asked: Any = {"config": _CONFIG, "channels": [_CHANNEL]}
    if not cls.__name__.startswith("Async"):
        return cls(Imitation(_rows())).get_delta_channel_history(**asked)

    async def read() -> Any:
        return await cls(AsyncImitation(_rows())).aget_delta_channel_history(**asked)

    return apart(read)


def _probe() -> Finding:
    found = {}
    for cls in installed("postgres"):
        entry = _history(cls)[_CHANNEL]
        found[cls.__name__] = entry.get("seed", "none at all")
    evidence = "; ".join(f"{name}: None is stored, seed {seed!r}" for name, seed in found.items())
    return Finding("older" in found.values(), evidence)


DEFECT = Defect(
    slug="postgres-none-seed",
    symptom="a channel that held None when it turned delta reads an older value again",
    upstream=(),
    distribution="langgraph-checkpoint-postgres",
    probe=_probe,
    remedy=Advice(
        "Before a channel that may hold None turns into a delta channel, update its threads with "
        "an empty value of its type; or let the threads that hold None begin anew."
    ),
    severity="corrupts",
    savers=frozenset({"postgres"}),
)
