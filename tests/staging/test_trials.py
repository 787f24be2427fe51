"""What a test run is taken for, with real runs of pytest."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from deerflow_saver.errors import StagingError
from deerflow_saver.staging import trials
from deerflow_saver.staging.environments import Environment, installed
from deerflow_saver.staging.installers import interpreter_of
from deerflow_saver.staging.staged import Staged
from deerflow_saver.staging.trials import Sighting, run_trial, try_fix


def staged(folder: Path, test: str, slug: str = "overwrite-first-write") -> Staged:
    (folder / "test_defect.py").write_text(test, encoding="utf-8")
    return Staged(slug, folder, "", "langgraph", (), ())


def sighting(folder: Path, test: str) -> Sighting:
    return run_trial(staged(folder, test), installed())


def test_a_test_that_passes(tmp_path: Path) -> None:
    seen = sighting(tmp_path, "def test_it(): assert 1 == 1")
    assert (seen.passes, seen.shows) == (True, False)


@pytest.mark.parametrize(
    "body",
    ["assert 1 == 2", "assert 1 == 2, 'why'", "raise AssertionError('why')", "pytest.fail('why')"],
)
def test_a_failed_assertion_shows_the_defect(tmp_path: Path, body: str) -> None:
    seen = sighting(tmp_path, f"import pytest\ndef test_it(): {body}\ndef test_other(): pass")
    assert (seen.passes, seen.shows) == (False, True)
    assert seen.passed == 1
    assert "test_it" in seen.told


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("def test_it(): raise KeyError('x')", "KeyError"),
        ("def test_it(): assert 1 == 2\ndef test_other(): raise KeyError('x')", "KeyError"),
        ("import no_such_module\ndef test_it(): assert 1 == 2", "no_such_module"),
        ("import pytest\ndef test_it(): pytest.skip('no server')", "no server"),
        ("def test_it(no_such_fixture): pass", "no_such_fixture"),
        ("", "no test ran"),
    ],
    ids=["exception", "one of two", "collection", "skip", "fixture", "none"],
)
def test_everything_else_shows_nothing(tmp_path: Path, test: str, told: str) -> None:
    seen = sighting(tmp_path, test)
    assert (seen.passes, seen.shows) == (False, False)
    assert told in seen.told


def test_a_test_that_does_not_end_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_SECONDS", 1.0)
    seen = sighting(tmp_path, "import time\ndef test_it(): time.sleep(600)")
    assert (seen.passes, seen.shows) == (False, False)
    assert seen.broken


def test_this_package_is_not_imported_until_the_fix_is_tried(tmp_path: Path) -> None:
    test = "import sys\ndef test_it(): assert 'deerflow_saver' not in sys.modules"
    assert sighting(tmp_path, test).passes
    seen = try_fix(staged(tmp_path, test), installed())
    assert seen.shows
    assert seen.fix == "patch"


def test_a_slug_without_a_runtime_fix_has_none(tmp_path: Path) -> None:
    seen = try_fix(staged(tmp_path, "def test_it(): pass", "no-such-defect"), installed())
    assert (seen.fix, seen.evidence) == ("", "")


def test_the_wrapper_is_put_round_the_saver_only_where_it_is_the_fix(tmp_path: Path) -> None:
    test = "def test_it(wrap): assert type(wrap(object())) is object"
    change = staged(tmp_path, test, "alist-holds-lock")
    assert run_trial(change, installed()).passes
    seen = try_fix(change, installed())
    assert seen.fix == "wrapper"
    assert not seen.passes


def test_the_projects_own_pytest_settings_do_not_count(tmp_path: Path) -> None:
    seen = sighting(tmp_path, "import warnings\ndef test_it(): warnings.warn('not an error here')")
    assert seen.passes


def test_an_environment_without_pytest_cannot_be_asked(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    bare = Environment("1.2.24", interpreter_of(tmp_path / "bare"))
    with pytest.raises(StagingError, match="need pytest"):
        run_trial(staged(tmp_path, "def test_it(): pass"), bare)
