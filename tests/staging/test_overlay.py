from __future__ import annotations

import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.environments import installed
from deerflow_saver.staging.overlay import apply_diff, copy_distribution, distribution_version

AROUND = "".join(f"line {number}\n" for number in range(10))
BEFORE = f"{AROUND}one\ntwo\nthree\nfour\nfive\n{AROUND}"
DIFF = """\
--- a/package/module.py
+++ b/package/module.py
@@ -11,5 +11,5 @@
 one
 two
-three
+3
 four
 five
"""


@pytest.fixture(params=["git", "patch"])
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Only this program that applies diffs is on the path."""
    name: str = request.param
    found = shutil.which(name)
    assert found is not None, f"this test needs {name}"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return name


@pytest.fixture
def diff(tmp_path: Path) -> Path:
    path = tmp_path / "upstream.patch"
    path.write_text(DIFF, encoding="utf-8")
    return path


def overlay(tmp_path: Path, text: str) -> Path:
    module = tmp_path / "overlay" / "package" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(text, encoding="utf-8")
    return tmp_path / "overlay"


def read(folder: Path) -> str:
    return (folder / "package" / "module.py").read_text(encoding="utf-8")


def test_a_diff_is_applied(program: str, tmp_path: Path, diff: Path) -> None:
    folder = overlay(tmp_path, BEFORE)
    assert apply_diff(folder, diff) is None
    assert read(folder) == BEFORE.replace("three", "3")


def test_lines_may_have_moved(program: str, tmp_path: Path, diff: Path) -> None:
    folder = overlay(tmp_path, "new\n" * 30 + BEFORE)
    assert apply_diff(folder, diff) is None
    assert read(folder) == "new\n" * 30 + BEFORE.replace("three", "3")


@pytest.mark.parametrize("line", ["three", "one"], ids=["the changed line", "its context"])
def test_another_line_is_a_reject_with_the_hunk(
    program: str, tmp_path: Path, diff: Path, line: str
) -> None:
    folder = overlay(tmp_path, BEFORE.replace(line, "other"))
    reject = apply_diff(folder, diff)
    assert reject is not None
    assert "package/module.py" in reject.said
    assert "-three\n+3" in reject.hunks


def test_a_missing_file_is_a_reject(program: str, tmp_path: Path, diff: Path) -> None:
    folder = overlay(tmp_path, BEFORE)
    (folder / "package" / "module.py").unlink()
    reject = apply_diff(folder, diff)
    assert reject is not None
    assert "package/module.py" in reject.said


def test_a_repository_around_the_copy_changes_nothing(tmp_path: Path, diff: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    folder = overlay(tmp_path, BEFORE)
    assert apply_diff(folder, diff) is None
    assert read(folder) == BEFORE.replace("three", "3")


def test_without_a_program_the_error_says_what_is_needed(
    tmp_path: Path, diff: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StagingError, match="needs git or patch"):
        apply_diff(overlay(tmp_path, BEFORE), diff)


def test_a_copy_comes_before_the_installed_distribution(tmp_path: Path) -> None:
    here = installed()
    copy_distribution(here, "langgraph-checkpoint", tmp_path)
    memory = tmp_path / "langgraph" / "checkpoint" / "memory" / "__init__.py"
    memory.write_text("InMemorySaver = 'the copy'\n", encoding="utf-8")
    code = (
        "import langgraph.checkpoint.memory as copied, langgraph.graph as other;"
        "print(copied.InMemorySaver, other.__file__)"
    )
    # langgraph.graph imports the memory saver by name only, so a text will do.
    seen = here.run(["-c", code], path=[tmp_path])
    assert seen.stdout.startswith("the copy "), seen.stderr
    assert str(tmp_path) not in seen.stdout


def test_only_modules_are_copied(tmp_path: Path) -> None:
    copy_distribution(installed(), "langgraph-checkpoint", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"langgraph"}
    assert not [*tmp_path.rglob("*.pyc")]


def test_the_version_is_the_environments(tmp_path: Path) -> None:
    seen = distribution_version(installed(), "langgraph-checkpoint")
    assert seen == metadata.version("langgraph-checkpoint")


def test_a_distribution_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="no-such-distribution is not installed"):
        copy_distribution(installed(), "no-such-distribution", tmp_path)
