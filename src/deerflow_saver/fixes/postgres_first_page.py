"""Postgres: the history of a checkpoint that more than 1023 others came after reads empty.

Savers before 3.1.3 take a target that the first page of the thread does not hold for a root.
"""

from __future__ import annotations

from deerflow_saver.fixes._fix import Defect, InWrapper
from deerflow_saver.fixes._savers import seen_on
from deerflow_saver.walks.habits import loses_second_page

__all__ = ["DEFECT"]

DEFECT = Defect(
    slug="postgres-first-page",
    symptom="an old checkpoint of a long thread reads empty",
    upstream=("langgraph#8448",),
    distribution="langgraph-checkpoint-postgres",
    probe=seen_on(loses_second_page, "postgres"),
    remedy=InWrapper(
        "After a walk that found no stored value below a checkpoint that is not the head, the "
        "wrapper asks how many came after it, and takes the base class's walk if a page is full."
    ),
    severity="loses",
    savers=frozenset({"postgres"}),
)
