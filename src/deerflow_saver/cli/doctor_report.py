"""The doctor's findings as text."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from deerflow_saver.doctor.database import DatabaseReport
from deerflow_saver.doctor.defects import concerns
from deerflow_saver.doctor.examination import Examination, SaverReport
from deerflow_saver.doctor.scratch import Scratch

__all__ = ["as_text"]

_EVIDENCE = 100
_REMEDIES = {
    "patch": "CachedHistorySaver patches it, or its guard refuses",
    "wrapper": "CachedHistorySaver answers rightly, or refuses",
    "guard": "CachedHistorySaver refuses",
    "advice": "advice",
}
_ORDERS = {
    "task path": "by task path",
    "task id": "by task id, which is chance",
    "as stored": "as they were stored, which is chance",
    None: "in no known order",
}
_FENCES = {
    "transaction": "against every guarded writer of the database",
    "process": "against this process only: give a thread to one worker at a time",
    None: "not known",
}


def as_text(found: Examination) -> str:
    """Everything, the problems last."""
    return "\n".join(_lines(found))


def _lines(found: Examination) -> Iterator[str]:
    for name, version in found.versions.items():
        yield f"{name:<30} {version or 'not installed'}"
    if found.saver is not None:
        yield from ("", *_saver(found.saver))
    if found.database is not None:
        yield from ("", *_database(found.database))
    yield from ("", *_defects(found))
    yield from ("", *_problems(found))


def _saver(saver: SaverReport) -> Iterator[str]:
    can, seen = saver.capabilities, saver.capabilities.observed
    yield "saver, outermost first"
    for layer in saver.stack:
        yield f"  {layer.name:<28} {layer.role}; history: {layer.history}"
    yield _line("the cache is asked", f"{saver.cache.answer}: {saver.cache.reason}")
    yield _line("guard", saver.guard)
    yield _line("it holds" if saver.guard != "off" else "a guard would hold", _FENCES[can.fence])
    yield _line("works", can.faces)
    if seen is None:
        yield _line("what it keeps", "not known for this class; --scratch-thread tries it")
    else:
        yield _line("parents", "kept" if seen.parent_links else "LOST")
        yield _line("parallel writes", f"come back {_ORDERS[seen.write_order]}")
        yield _line("a repeated write", "changes nothing" if seen.idempotent_writes else "is kept")
        yield _line("ancestors' writes", "given" if seen.delta_history else "NOT GIVEN")
        yield _line("known from", can.source)
    if saver.scratch is not None:
        yield from _scratch(saver.scratch)


def _scratch(scratch: Scratch) -> Iterator[str]:
    gone = "written and deleted" if scratch.left is None else f"STILL THERE: {scratch.left}"
    yield _line("scratch thread", f"{scratch.thread_id} {gone}")
    if scratch.error:
        yield _line("  failed", scratch.error)
    if scratch.asked is not None:
        yield _line("  reached the cache", "yes" if scratch.asked else "no")


def _database(database: DatabaseReport) -> Iterator[str]:
    yield f"database {database.address}"
    if not database.set_up:
        yield "  not set up: the saver's tables are not there; call the saver's setup()"
        return
    if database.outdated:
        yield _line("setup() would add", database.outdated)
    yield _line("threads", str(database.threads))
    yield _line("namespaces with deltas", str(database.delta_namespaces))
    yield _line("  forks", str(len(database.forks)))
    yield _line("  missing parents", str(database.missing_parents))
    yield _line("  parents of later id", str(database.parents_after_children))
    yield _line("  steps without order", str(database.unordered_writes))
    yield _line("fence", "installed" if database.fence else "not installed")


def _defects(found: Examination) -> Iterator[str]:
    here = [row for row in found.rows if concerns(row, found.setting)]
    yield f"known defects: {len(here)} of {len(found.rows)} are here"
    for row in here:
        yield f"  {row.slug:<28} {row.presence}; {_REMEDIES[row.remedy]}"
        yield f"  {'':<28} {shorten(row.evidence, _EVIDENCE, placeholder=' ...')}"


def _problems(found: Examination) -> Iterator[str]:
    if not found.problems:
        yield "nothing that can lose or corrupt data is unanswered"
        return
    yield "can lose or corrupt data, and nothing answers it:"
    for problem in found.problems:
        yield f"  {problem.slug}: {problem.what}"
        yield f"    {problem.advice}"
    if found.only_advice:
        accepted = " ".join(f"--accept {problem.slug}" for problem in found.problems)
        yield f"the exit status is 1 until you say that you follow the advice: {accepted}"


def _line(name: str, text: str) -> str:
    return f"  {name:<28} {text}"
