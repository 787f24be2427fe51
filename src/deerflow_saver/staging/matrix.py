"""The matrix: which release shows which defect on which raw saver, by running the scenarios."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from deerflow_saver._versions import installed
from deerflow_saver.errors import StagingError
from deerflow_saver.staging.environments import environment, own_package
from deerflow_saver.staging.scenarios.catalogue import ALL
from deerflow_saver.staging.scenarios.playing import Cell, played
from deerflow_saver.staging.scenarios.scenario import EVERY, POSTGRES

__all__ = ["Column", "cell", "differences", "measured", "measured_here"]

_MODULE = "deerflow_saver.staging.scenarios"
_SECONDS = 600.0
"""For all scenarios on one saver; they take 10 to 60."""

Databases = Callable[[], AbstractContextManager[str]]
"""Makes an empty Postgres database, for as long as the block is open; gives its URI."""


@dataclass(frozen=True, slots=True)
class Column:
    """What one release showed.

    Attributes:
        release: of langgraph.
        versions: distribution name -> version, None if it is not installed.
        cells: scenario name -> `P`, `P(m,s)`, `-`, `n` or `?`; see `cell`.
        evidence: scenario name -> saver -> what was seen.

    """

    release: str
    versions: Mapping[str, str | None]
    cells: Mapping[str, str]
    evidence: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def cell(outcomes: Mapping[str, str]) -> str:
    """One cell, from what each saver of a scenario showed.

    `P` present on all of them, `P(m,s)` on those; `-` absent; `n` the call is not implemented
    anywhere; `?` the scenario itself failed somewhere.
    """
    if "broken" in outcomes.values():
        return "?"
    present = [saver for saver, outcome in outcomes.items() if outcome == "present"]
    if present:
        return "P" if len(present) == len(outcomes) else f"P({','.join(present)})"
    return "n" if set(outcomes.values()) == {"impossible"} else "-"


def measured(
    release: str,
    databases: Databases,
    *,
    savers: Collection[str] = EVERY,
    cache: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Column:
    """Play every scenario in the environment of a release.

    Args:
        release: of langgraph, or `"latest"`.
        databases: where the Postgres savers are played.
        savers: short names, see `scenarios.scenario.EVERY`.
        cache: where environments are kept.
        say: is told what takes long.

    Raises:
        StagingError: the environment cannot be made, or the scenarios do not run in it.

    """
    there = environment(release, cache=cache, say=say)
    versions: dict[str, str | None] = {}
    found: list[Cell] = []
    for saver in savers:
        say(f"langgraph {there.name}: {saver}")
        with databases() if saver in POSTGRES else nullcontext() as uri:
            argv = ["-m", _MODULE, "--saver", saver, *(["--postgres", uri] if uri else [])]
            ended = there.run(argv, path=[own_package()], timeout=_SECONDS)
        if ended.returncode:
            last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
            message = f"the scenarios do not run on langgraph {there.name}: {last[0]}"
            raise StagingError(message)
        first, *lines = map(json.loads, ended.stdout.splitlines())
        versions = first["versions"]
        found += [Cell(**line) for line in lines]
    return _column(there.name, versions, found)


def measured_here(savers: Sequence[str], postgres_uri: str | None = None) -> Column:
    """Play every scenario in this process, on what is installed."""
    versions = installed()
    found = [one for saver in savers for one in played(ALL, saver, postgres_uri)]
    return _column(str(versions["langgraph"]), versions, found)


def differences(column: Column, expected: Mapping[str, str]) -> list[str]:
    """Where what was measured departs from the cells of an earlier measurement, line by line.

    Only savers that were played count, so that a part can be compared with the whole.
    """
    return [
        f"{name}: measured {now}, expected {then}"
        for name, evidence in column.evidence.items()
        if (now := column.cells[name]) != (then := _narrowed(expected.get(name), evidence))
    ]


def _narrowed(text: str | None, savers: Iterable[str]) -> str | None:
    """A cell of all savers as it would be if only `savers` had been played."""
    if text is None or not text.startswith("P("):
        return text
    there = text.removeprefix("P(").removesuffix(")").split(",")
    return cell({saver: "present" if saver in there else "absent" for saver in savers})


def _column(release: str, versions: Mapping[str, str | None], found: Iterable[Cell]) -> Column:
    outcomes: dict[str, dict[str, str]] = {}
    evidence: dict[str, dict[str, str]] = {}
    for one in found:
        outcomes.setdefault(one.name, {})[one.saver] = one.outcome
        evidence.setdefault(one.name, {})[one.saver] = one.evidence
    names = [scenario.name for scenario in ALL if scenario.name in outcomes]
    cells = {name: cell(outcomes[name]) for name in names}
    return Column(release, versions, cells, {name: evidence[name] for name in names})
