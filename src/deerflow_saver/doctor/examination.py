"""Everything the doctor found, and what of it needs an answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from deerflow_saver import fixes
from deerflow_saver._versions import installed
from deerflow_saver.doctor.capabilities import Capabilities
from deerflow_saver.doctor.database import DatabaseReport
from deerflow_saver.doctor.defects import Setting, concerns, unanswered
from deerflow_saver.doctor.scratch import Scratch
from deerflow_saver.doctor.stack import Consulted, Layer
from deerflow_saver.fixes import Row
from deerflow_saver.fixes.threads_forked_before import DEFECT as FORKED

__all__ = ["SEEN_ONLY", "Examination", "Problem", "SaverReport", "examined", "problems"]

_FEW = 5
SEEN_ONLY = frozenset({"missing-parents", "no-history"})
"""Problems that no probe looks for, and that only advice is left for."""


@dataclass(frozen=True, slots=True)
class SaverReport:
    """A saver: its stack, outermost first, whether the cache is asked, what the last one can."""

    stack: list[Layer]
    cache: Consulted
    guard: str
    """The guard's policy, `off` without one."""
    capabilities: Capabilities
    scratch: Scratch | None = None
    refused: str | None = None
    """Why `CachedHistorySaver` refuses to wrap the saver; None if it does not."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that can lose or corrupt data, and what to do about it."""

    slug: str
    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found."""

    versions: dict[str, str | None]
    rows: tuple[Row, ...]
    setting: Setting
    saver: SaverReport | None = None
    database: DatabaseReport | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def only_advice(self) -> bool:
        """Whether there are problems, and all end once their advice is accepted."""
        advice = SEEN_ONLY | {one.slug for one in fixes.DEFECTS if one.kind == "advice"}
        return bool(self.problems) and advice.issuperset(one.slug for one in self.problems)

    def as_data(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        unmet = {problem.slug for problem in self.problems}
        return {
            "versions": self.versions,
            "defects": [
                {
                    **asdict(row),
                    "concerns_you": concerns(row, self.setting),
                    "answered": row.slug not in unmet,
                }
                for row in self.rows
            ],
            "saver": None if self.saver is None else asdict(self.saver),
            "database": None if self.database is None else asdict(self.database),
            "problems": [asdict(problem) for problem in self.problems],
        }


def examined(
    setting: Setting, saver: SaverReport | None = None, database: DatabaseReport | None = None
) -> Examination:
    """Probe for every defect and weigh it against the saver and the database."""
    rows = fixes.status()
    found = problems(rows, setting, saver, database)
    return Examination(installed("deerflow-saver"), rows, setting, saver, database, found)


def problems(
    rows: tuple[Row, ...],
    setting: Setting,
    saver: SaverReport | None,
    database: DatabaseReport | None,
) -> list[Problem]:
    """What can lose or corrupt data, unanswered; the database's own wounds first."""
    seen = [*_of_database(database), *_of_saver(saver)]
    looked = _looked_for(saver, database)
    of_release = [
        Problem(row.slug, _symptom(row.slug), _advice(row, setting))
        for row in unanswered(rows, setting)
        if row.slug not in looked
    ]
    return [one for one in (*seen, *of_release) if one.slug not in setting.accepted]


def _looked_for(saver: SaverReport | None, database: DatabaseReport | None) -> set[str]:
    """Defects of rows or of a stack, which are seen there and need no probe's word."""
    rows = {"threads-forked-before", "rows-without-task-path"} if database is not None else set()
    stack = {"star-args-wrapper", "shallow-saver"} if saver is not None else set()
    return rows | stack


def _named(threads: Collection[str]) -> str:
    """The first threads of a set, for a sentence."""
    few = ", ".join(sorted(threads)[:_FEW])
    more = f" and {len(threads) - _FEW} more" if len(threads) > _FEW else ""
    return f"{'thread' if len(threads) == 1 else 'threads'} {few}{more}"


def _of_database(database: DatabaseReport | None) -> Iterator[Problem]:
    if database is None:
        return
    if database.forks:
        yield Problem(
            "threads-forked-before",
            f"{len(database.forks)} checkpoints have several children, which may read each "
            f"other's writes, in {_named({fork.thread_id for fork in database.forks})}",
            FORKED.remedy.text,
        )
    if database.missing_parents:
        yield Problem(
            "missing-parents",
            f"{database.missing_parents} parents are named and not there: histories end early",
            "restore the rows, or write the affected state anew with update_state",
        )
    if database.unordered_writes:
        yield Problem(
            "rows-without-task-path",
            f"{database.unordered_writes} unfinished steps were begun without the order of their "
            "parallel writes",
            "finish them with the release they were begun under, or run them anew",
        )


def _of_saver(saver: SaverReport | None) -> Iterator[Problem]:
    if saver is None:
        return
    if saver.refused:
        yield Problem(
            "shallow-saver", saver.refused, "use PostgresSaver, SqliteSaver, InMemorySaver"
        )
    for layer in saver.stack:
        if layer.task_path == "lost":
            yield Problem(
                "star-args-wrapper",
                f"{layer.name}.put_writes does not name task_path: the order of parallel writes is "
                "left out",
                "name it: put_writes(self, config, writes, task_id, task_path='')",
            )
    if saver.scratch is not None:
        yield from _of_scratch(saver.scratch)
    seen = saver.capabilities.observed
    if seen is not None and not (seen.parent_links and seen.delta_history):
        yield Problem(
            "no-history",
            "the saver gives no writes of a checkpoint's ancestors: delta channels read empty",
            "use a saver that keeps every checkpoint and its parent",
        )


def _of_scratch(scratch: Scratch) -> Iterator[Problem]:
    if scratch.error:
        what = f"the saver failed on a thread of its own: {scratch.error}"
        yield Problem("scratch-failed", what, "a graph's runs will fail in the same way")
    if scratch.left:
        what = f"the scratch thread {scratch.thread_id} is still there: {scratch.left}"
        yield Problem("scratch-left", what, "delete its rows")


def _symptom(slug: str) -> str:
    return next(defect.symptom for defect in fixes.DEFECTS if defect.slug == slug)


def _advice(row: Row, setting: Setting) -> str:
    if row.remedy == "guard" and not setting.guarded:
        return "wrap the saver in CachedHistorySaver with guard='refuse'"
    if row.remedy == "patch" and not setting.wrapped:
        return "wrap the saver in CachedHistorySaver, or call deerflow_saver.fixes.apply()"
    if row.remedy == "wrapper" and not setting.wrapped:
        return "wrap the saver in CachedHistorySaver, where reads reach it"
    if row.remedy in {"patch", "wrapper"} and row.slug not in setting.fixes:
        return f"do not turn the fix off: fixes='auto', or {row.slug} in DEERFLOW_SAVER_FIXES"
    return row.advice
