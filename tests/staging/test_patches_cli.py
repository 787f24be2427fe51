"""`deerflow-saver patches` on the installed release: no network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from deerflow_saver.cli.__main__ import main
from deerflow_saver.staging.caching import CACHE_VARIABLE

PATCHES = Path(__file__).parents[2] / "patches"
SLUG = "overwrite-first-write"


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """A `patches` folder of the test's own, with one change."""
    shutil.copytree(PATCHES / SLUG, tmp_path / "patches" / SLUG)
    return tmp_path / "patches"


def validated(
    folder: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, Any]]:
    command = ["patches", "validate", *options, "--installed", "--json", "--patches", str(folder)]
    status = main(command)
    (result,) = json.loads(capsys.readouterr().out)
    return status, result["verdict"]


def test_a_change_is_validated_on_the_installed_release(
    staged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, verdict = validated(staged, capsys, SLUG)
    assert (status, verdict["outcome"], verdict["fix"]) == (0, "validated", "patch")
    assert not (staged / "results.json").exists()


def test_a_diff_of_other_code_is_a_reject_with_its_hunk(
    staged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diff = staged / SLUG / "upstream.patch"
    text = diff.read_text(encoding="utf-8")
    diff.write_text(text.replace("-        if self.value is", "-        if self.worth is"), "utf-8")
    status, verdict = validated(staged, capsys)
    assert (status, verdict["outcome"]) == (1, "reject")
    assert "langgraph/channels/binop.py" in verdict["detail"]
    assert "self.worth is" in verdict["detail"]


def test_a_diff_that_does_not_help_still_fails(
    staged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diff = staged / SLUG / "upstream.patch"
    text = diff.read_text(encoding="utf-8")
    diff.write_text(text.replace("and not _get_overwrite", "and _get_overwrite"), "utf-8")
    status, verdict = validated(staged, capsys)
    assert (status, verdict["outcome"]) == (1, "still-fails")


def test_a_test_that_passes_anyway_is_no_failure(
    staged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (staged / SLUG / "test_defect.py").write_text("def test_it(): pass\n", encoding="utf-8")
    status, verdict = validated(staged, capsys)
    assert (status, verdict["outcome"]) == (0, "already-fixed-upstream")


def test_the_table_for_people_names_outcome_and_reason(
    staged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (staged / SLUG / "test_defect.py").write_text("import no_such_module\n", encoding="utf-8")
    assert main(["patches", "validate", "--installed", "--patches", str(staged)]) == 1
    told = capsys.readouterr().out
    assert f"{SLUG} on " in told
    assert "defect-not-shown" in told
    assert "no_such_module" in told
    assert "0 of 1" in told


def test_an_index_that_does_not_answer_ends_the_command(
    staged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    for variable in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/simple")
    assert main(["patches", "validate", "--release", "1.2.9", "--patches", str(staged)]) == 2
    said = capsys.readouterr()
    assert "langgraph 1.2.9 cannot be made" in said.err
    assert "http://127.0.0.1:9/simple" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["validate", "no-such-change"], "nothing staged as no-such-change"),
        (["validate", "--installed", "--latest"], "--installed"),
        (["list", "--write", "no-such-page.md"], "no-such-page.md"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(
    staged: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    assert main(["patches", *options, "--patches", str(staged)]) == 2
    assert told in capsys.readouterr().err


def test_without_staged_changes_the_folder_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["patches", "list"]) == 2
    assert "--patches" in capsys.readouterr().err


def test_list_tells_what_is_staged_and_was_validated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PATCHES / SLUG)
    assert main(["patches", "list"]) == 0
    told = capsys.readouterr().out
    assert f"{SLUG} (langgraph)" in told
    assert main(["patches", "list", "--json"]) == 0
    listed = {change["slug"]: change for change in json.loads(capsys.readouterr().out)}
    assert listed[SLUG]["results"]["1.2.24"]["outcome"] == "validated"
    assert listed[SLUG]["upstream"]
