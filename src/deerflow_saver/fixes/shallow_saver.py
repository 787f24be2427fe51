"""`ShallowPostgresSaver` keeps no ancestors, so a delta channel reads empty, without an error."""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, Finding, RefusedByGuard

__all__ = ["DEFECT"]


def _probe() -> Finding:
    from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver

    from deerflow_saver.walks.scenes import parent_kept

    kept = parent_kept(ShallowPostgresSaver)
    return Finding(not kept, f"the tuple it reads {'has a' if kept else 'has no'} parent_config")


DEFECT = Defect(
    slug="shallow-saver",
    symptom="with ShallowPostgresSaver, delta channels are empty after every reload",
    upstream=(),
    distribution="langgraph-checkpoint-postgres",
    probe=_probe,
    remedy=RefusedByGuard(
        "CachedHistorySaver refuses to wrap it (UnsupportedSaverError). Use PostgresSaver; "
        "durability='exit' keeps few checkpoints as well."
    ),
    severity="loses",
    savers=frozenset({"postgres"}),
)
