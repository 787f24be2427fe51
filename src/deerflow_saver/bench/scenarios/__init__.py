"""What is done in a case: prepared once, then measured round by round, compared at the end."""

from __future__ import annotations

from collections.abc import Mapping

from deerflow_saver.bench.scenarios.base import Scenario
from deerflow_saver.bench.scenarios.forks import Forks
from deerflow_saver.bench.scenarios.long import Long
from deerflow_saver.bench.scenarios.reading import Paging, Polling
from deerflow_saver.bench.scenarios.restarts import Cold
from deerflow_saver.bench.scenarios.threads import Threads
from deerflow_saver.bench.scenarios.turns import Agent, Append
from deerflow_saver.bench.scenarios.workers import Workers

__all__ = ["BY_NAME", "Scenario"]

BY_NAME: Mapping[str, type[Scenario]] = {
    "agent": Agent,
    "append": Append,
    "threads": Threads,
    "long": Long,
    "polling": Polling,
    "paging": Paging,
    "forks": Forks,
    "cold": Cold,
    "workers": Workers,
}
