"""Postgres: a stored None of an ordinary channel is passed over when the channel turns delta.

Savers since 3.1.2 tell a value kept in the checkpoint from an absent one by whether it is
None (`BasePostgresSaver._ingest_stage1_page`), and walk on to an older value.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, InWrapper
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import skips_none_seed

__all__ = ["DEFECT"]

DEFECT = Defect(
    slug="postgres-none-seed",
    symptom="a channel that held None when it turned delta reads an older value again",
    upstream=(),
    distribution="langgraph-checkpoint-postgres",
    probe=seen_on(skips_none_seed, "postgres"),
    remedy=InWrapper(
        "After a walk that found no snapshot, the wrapper asks whether the thread stores a None "
        "for the channel, and then takes the base class's walk. A None that was stored while a "
        "channel was an ordinary one again, between snapshots of a delta channel, is not asked "
        "about."
    ),
    severity="corrupts",
    savers=frozenset({"postgres"}),
)
