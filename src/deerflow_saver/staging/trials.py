"""Run a staged test once, in an environment, and read what it showed."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.environments import Environment, own_package
from deerflow_saver.staging.staged import Staged

__all__ = ["Sighting", "run_trial", "try_fix"]

_SECONDS = 300.0
_LONGEST = 400
_SHOWS = re.compile(r"AssertionError|assert |Failed:")
_ALONE = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--tb=short")


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one run of a staged test showed.

    Attributes:
        passed: how many tests passed.
        failed: what each test said that failed by an assertion.
        broken: what was said by everything else that is no pass: other exceptions, errors
            while collecting, skipped tests.
        fix: kind of remedy that was in place: `"patch"`, `"wrapper"`, `"guard"`, `"advice"`;
            empty if none.
        evidence: what became of that remedy.

    """

    passed: int = 0
    failed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    fix: str = ""
    evidence: str = ""

    @property
    def passes(self) -> bool:
        """Every test passed, and there is one."""
        return self.passed > 0 and not self.failed and not self.broken

    @property
    def shows(self) -> bool:
        """A test failed by an assertion, and nothing else went wrong."""
        return bool(self.failed) and not self.broken

    @property
    def told(self) -> str:
        """The first thing that went wrong, for a person."""
        return next(iter((*self.broken, *self.failed)), "no test ran")


def run_trial(staged: Staged, environment: Environment, path: Iterable[Path] = ()) -> Sighting:
    """Run the test with `path` before the environment's own packages.

    Raises:
        StagingError: the environment has no pytest.

    """
    return _run(staged, environment, tuple(path), {})


def try_fix(staged: Staged, environment: Environment) -> Sighting:
    """Run the test with the runtime fix of the same slug in place."""
    return _run(staged, environment, (own_package(),), {"slug": staged.slug})


def _run(
    staged: Staged, environment: Environment, path: tuple[Path, ...], fix: Mapping[str, str]
) -> Sighting:
    with tempfile.TemporaryDirectory(prefix="deerflow-saver-trial-") as name:
        folder = Path(name)
        shutil.copy(staged.test, folder / "test_defect.py")
        shutil.copy(Path(__file__).with_name("plugin.py"), folder / "conftest.py")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        asked = folder / "fix.json"
        if fix:
            asked.write_text(json.dumps(fix), encoding="utf-8")
        sighting = _look(environment, folder, path)
        told = json.loads(asked.read_text(encoding="utf-8")) if fix else {}
    return replace(sighting, fix=told.get("remedy", ""), evidence=told.get("evidence", ""))


def _look(environment: Environment, folder: Path, path: tuple[Path, ...]) -> Sighting:
    report = folder / "report.xml"
    try:
        ended = environment.run(
            ["-m", "pytest", *_ALONE, f"--junitxml={report}", "test_defect.py"],
            path=path,
            cwd=folder,
            timeout=_SECONDS,
            # Only pytest itself: the environments differ in what else is installed.
            variables={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )
    except StagingError as error:
        return Sighting(broken=(str(error),))
    if "No module named pytest" in ended.stderr:
        msg = f"the tests need pytest: install it beside langgraph, for {environment.python}"
        raise StagingError(msg)
    if not report.exists():
        return Sighting(broken=(_shortened(ended.stderr or ended.stdout),))
    return _read(report)


def _read(report: Path) -> Sighting:
    passed = 0
    failed: list[str] = []
    broken: list[str] = []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest just wrote it
        told = [child for child in case if child.tag in {"failure", "error", "skipped"}]
        passed += not told
        for child in told:
            message = child.get("message") or child.tag
            if child.tag == "error":
                message = f"{message}: {_cause(child.text or '')}"
            shows = child.tag == "failure" and _SHOWS.match(message)
            (failed if shows else broken).append(_shortened(f"{case.get('name')}: {message}"))
    return Sighting(passed, tuple(failed), tuple(broken))


def _cause(text: str) -> str:
    """The lines that pytest marks as the error, or else all."""
    marked = [line[1:] for line in text.splitlines() if line.startswith("E ")]
    return " ".join(marked) or text


def _shortened(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
