"""Every defect of the registry: how it is described, and how its probe behaves."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda

from deerflow_saver import fixes
from deerflow_saver.fixes import DEFECTS, Defect, Patch, Presence
from deerflow_saver.fixes._looking import look

every_defect = pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.slug)

pytestmark = pytest.mark.usefixtures("as_released")


def test_slugs_are_unique_words_joined_by_dashes() -> None:
    slugs = [defect.slug for defect in DEFECTS]
    assert len(slugs) == len(set(slugs))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) for slug in slugs)


@every_defect
def test_a_defect_says_what_it_is_and_what_to_do(defect: Defect) -> None:
    assert defect.symptom
    assert "\n" not in defect.symptom
    assert not defect.symptom.endswith(".")
    assert all(re.fullmatch(r"[a-z-]+#\d+", reference) for reference in defect.upstream)
    assert defect.distribution.startswith("langgraph")
    assert defect.savers <= {"memory", "sqlite", "postgres"}
    assert defect.remedy.text.endswith(".")


@every_defect
def test_a_probe_sees_the_same_each_time_and_leaves_the_random_numbers(defect: Defect) -> None:
    numbers = random.getstate()
    first, again = look(defect), look(defect)
    assert first[0] in {Presence.PRESENT, Presence.ABSENT}, first
    assert again[0] is first[0]
    assert first[1]
    assert random.getstate() == numbers


def test_probes_are_quick(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, for a busy machine is slow."""
    lines = []
    for defect in DEFECTS:
        look(defect)
        began = time.perf_counter()
        look(defect)
        lines.append(f"{(time.perf_counter() - began) * 1000:6.1f} ms  {defect.slug}")
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


def failed_probes() -> list[Any]:
    """A row is FAILED, too, where this release cannot be patched."""
    return [row for row in fixes.status() if "probe itself failed" in row.evidence]


class Seen(BaseCallbackHandler):
    def __init__(self) -> None:
        self.runs: list[Any] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.runs.append(kwargs.get("name"))


def test_a_probe_in_a_run_is_no_part_of_it() -> None:
    """Neither callbacks nor the saver of the run that happens to call."""
    seen = Seen()
    node = RunnableLambda(lambda _: [row.slug for row in fixes.status()], name="node")
    node.invoke(None, {"callbacks": [seen], "configurable": {"thread_id": "of the user"}})
    assert seen.runs == ["node"]


TRACING = """
import langchain_core.tracers.langchain as tracers
made = []

class Tracer(tracers.LangChainTracer):
    def __init__(self, *args, **kwargs):
        made.append(self)
        super().__init__(*args, **kwargs)

    def _persist_run_single(self, run):
        pass

    _update_run_single = _persist_run_single

tracers.LangChainTracer = Tracer
from langchain_core.runnables import RunnableLambda
from deerflow_saver import fixes
fixes.apply()
assert not made, "a probe is traced"
RunnableLambda(lambda _: None).invoke(None)
assert made, "any other run is"
"""


def test_probes_send_nothing_to_a_tracing_service() -> None:
    nowhere = {"LANGSMITH_ENDPOINT": "http://127.0.0.1:9", "LANGSMITH_API_KEY": "none"}
    environment = {**os.environ, **nowhere, "LANGSMITH_TRACING": "true"}
    subprocess.run([sys.executable, "-c", TRACING], check=True, env=environment, timeout=120)


async def test_probes_run_on_an_event_loop() -> None:
    before = asyncio.all_tasks()
    assert not failed_probes()
    assert asyncio.all_tasks() == before


def test_probes_log_and_print_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING):
        fixes.status()
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


IMPORTING = """
import deerflow_saver, deerflow_saver.fixes
assert deerflow_saver.fixes.applied() == frozenset()
import wrapt, langgraph.pregel._loop as loop, langgraph.channels.binop as binop
from langgraph.checkpoint.memory import InMemorySaver
for owner, name in (
    (loop.PregelLoop, "_first"), (loop.PregelLoop, "put_writes"),
    (binop.BinaryOperatorAggregate, "update"), (InMemorySaver, "get_delta_channel_history"),
):
    assert not isinstance(vars(owner)[name], wrapt.FunctionWrapper), name
"""


def test_importing_the_package_patches_nothing() -> None:
    subprocess.run([sys.executable, "-c", IMPORTING], check=True)


def test_every_patch_restores_the_very_objects_it_found() -> None:
    from deerflow_saver.fixes._sites import Site

    sites = [site for defect in DEFECTS for site in _sites(defect)]
    assert len(sites) > 5
    before = [_current(site) for site in sites]
    applied = {row.slug for row in fixes.apply() if row.presence is Presence.FIXED}
    for defect in DEFECTS:
        touched = [_current(site) is not old for site, old in zip(sites, before, strict=True)]
        assert any(touched) is bool(applied)
        fixes.revert([defect.slug])
        applied.discard(defect.slug)
    assert all(_current(site) is old for site, old in zip(sites, before, strict=True))
    assert all(isinstance(site, Site) for site in sites)


def test_where_a_probe_sees_nothing_nothing_is_touched() -> None:
    absent = [row.slug for row in fixes.status() if row.presence is Presence.ABSENT]
    sites = [site for d in DEFECTS if d.slug in absent for site in _sites(d)]
    before = [_current(site) for site in sites]
    rows = fixes.apply(absent)
    assert {row.presence for row in rows} <= {Presence.ABSENT}
    assert all(_current(site) is old for site, old in zip(sites, before, strict=True))
    assert fixes.applied() == frozenset()


def _sites(defect: Defect) -> tuple[Any, ...]:
    """The sites of a patch whose modules and attributes this release has."""
    from deerflow_saver.fixes._fix import CannotPatchError
    from deerflow_saver.fixes._sites import require

    if not isinstance(defect.remedy, Patch):
        return ()
    found = []
    for site in defect.remedy.apply.__self__._sites:  # type: ignore[attr-defined]
        try:
            require(site.module, site.path)
        except CannotPatchError:
            continue
        found.append(site)
    return tuple(found)


def _current(site: Any) -> Any:
    import wrapt

    return wrapt.resolve_path(sys.modules[site.module], site.path)[2]


def test_every_defect_module_is_in_the_registry() -> None:
    """`fixes/` holds a module per slug, and helpers whose names begin with an underscore."""
    folder = Path(str(fixes.__file__)).parent
    modules = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
    assert modules == {defect.slug for defect in DEFECTS}


SECTIONS = {
    "patch": "Runtime fixes",
    "guard": "Answered by the guard",
    "wrapper": "Answered by the wrapper",
    "advice": "Advice",
}


def test_the_page_lists_every_defect_under_its_remedy() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fixes.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    for kind, title in SECTIONS.items():
        listed = set(re.findall(r"^\| `([a-z-]+)` \|", sections[title], re.MULTILINE))
        assert listed == {defect.slug for defect in fixes.DEFECTS if defect.kind == kind}
