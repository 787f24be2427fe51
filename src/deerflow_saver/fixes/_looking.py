"""Run a probe so that nobody notices: no tracing, no callbacks and no config of a caller.

LangGraph draws checkpoint ids from the process's random numbers, so their state is put back
as well: who seeded them gets the same numbers with and without a probe.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable
from typing import NamedTuple

from deerflow_saver.fixes._fix import Defect, Finding, Presence

__all__ = ["Seen", "look"]


class Seen(NamedTuple):
    """What became of a probe; the fields are those of `Row`."""

    presence: Presence
    evidence: str
    savers: tuple[str, ...] = ()


def look(defect: Defect) -> Seen:
    """What the defect's probe sees now: present, absent, not installed, or that it failed."""
    try:
        finding = contextvars.Context().run(_untraced, defect.probe)
    except ImportError as error:
        return Seen(Presence.UNKNOWN, f"cannot be imported: {error}")
    except Exception as error:  # noqa: BLE001 - whatever a future release raises, it is a row
        return Seen(Presence.FAILED, f"the probe itself failed: {type(error).__name__}: {error}")
    presence = Presence.PRESENT if finding.present else Presence.ABSENT
    return Seen(presence, finding.evidence, finding.savers)


def _untraced(probe: Callable[[], Finding]) -> Finding:
    """Probes may run graphs, and LangChain would send their runs to a tracing service."""
    from langsmith import tracing_context

    numbers = random.getstate()
    try:
        with tracing_context(enabled=False):
            return probe()
    finally:
        random.setstate(numbers)
