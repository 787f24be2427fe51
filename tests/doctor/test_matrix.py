"""The matrix: how cells come about, how the page keeps them, and that they are still so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deerflow_saver import fixes
from deerflow_saver.cli.__main__ import main
from deerflow_saver.errors import StagingError
from deerflow_saver.fixes import DEFECTS
from deerflow_saver.staging import compatibility
from deerflow_saver.staging.environments import installed
from deerflow_saver.staging.matrix import Column, cell, differences, measured, measured_here
from deerflow_saver.staging.releases import known
from deerflow_saver.staging.scenarios.catalogue import ALL
from deerflow_saver.staging.scenarios.playing import played
from deerflow_saver.staging.scenarios.scenario import EVERY

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def _columns() -> dict[str, Column]:
    return compatibility.read(PAGE)


def _number(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]


@pytest.mark.parametrize("saver", ["m", "s"])
@pytest.mark.filterwarnings("ignore")
def test_the_installed_release_shows_what_the_page_says(saver: str) -> None:
    here = measured_here([saver])
    columns = _columns()
    documented = [name for name in columns if _number(name) <= _number(here.release)][-1]
    assert differences(here, columns[documented].cells) == []


def test_the_page_has_every_release_and_every_scenario() -> None:
    columns = _columns()
    assert list(columns) == list(known())
    names = [scenario.name for scenario in ALL]
    for release, column in columns.items():
        assert list(column.cells) == names
        assert column.versions == dict(known()[release].versions)
        assert "?" not in column.cells.values()


def test_names_are_unique_and_fit_a_table() -> None:
    names = [scenario.name for scenario in ALL]
    assert len(set(names)) == len(names)
    assert not [name for name in names if set(name) & set("|<")]


def test_every_scenario_belongs_to_a_known_defect_and_every_saver_has_some() -> None:
    slugs = {defect.slug for defect in DEFECTS}
    assert {scenario.slug for scenario in ALL} <= slugs
    assert {saver for scenario in ALL for saver in scenario.savers} == set(EVERY)


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ({"m": "present", "s": "present"}, "P"),
        ({"m": "present", "s": "absent"}, "P(m)"),
        ({"m": "absent", "p": "present", "ap": "present"}, "P(p,ap)"),
        ({"m": "absent", "s": "absent"}, "-"),
        ({"m": "impossible", "s": "impossible"}, "n"),
        ({"m": "impossible", "p": "absent"}, "-"),
        ({"m": "present", "s": "broken"}, "?"),
    ],
)
def test_a_cell_sums_its_savers_up(outcomes: dict[str, str], text: str) -> None:
    assert cell(outcomes) == text


@pytest.mark.parametrize(
    ("measured", "savers", "expected", "alike"),
    [
        ("P", ("m",), "P", True),
        ("P", ("m",), "P(m,s)", True),
        ("-", ("m",), "P(p,ap)", True),
        ("P", ("m",), "P(p,ap)", False),
        ("-", ("p",), "P(p,ap)", False),
        ("P(s)", ("m", "s"), "P(s,p)", True),
        ("-", ("m",), "P", False),
        ("-", ("m",), None, False),
    ],
)
def test_a_part_is_compared_with_the_whole(
    measured: str, savers: tuple[str, ...], expected: str | None, *, alike: bool
) -> None:
    column = Column("1", {}, {"case": measured}, {"case": dict.fromkeys(savers, "")})
    then = {} if expected is None else {"case": expected}
    assert (differences(column, then) == []) is alike


def _column(release: str, text: str) -> Column:
    return Column(release, dict(known()["1.2.0"].versions), {one.name: text for one in ALL})


def test_what_is_written_into_a_page_is_read_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{compatibility.BEGIN}{compatibility.END}\nafter\n")
    assert compatibility.read(page) == {}
    columns = compatibility.merged({}, [_column("1.2.10", "P"), _column("1.2.9", "-")])
    compatibility.write(page, columns)
    assert compatibility.read(page) == columns
    assert list(columns) == ["1.2.9", "1.2.10"]
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")


def test_a_new_measurement_takes_the_place_of_the_old_one() -> None:
    old = {"1.2.0": _column("1.2.0", "P"), "1.2.5": _column("1.2.5", "P")}
    merged = compatibility.merged(old, [_column("1.2.5", "-")])
    assert merged == {"1.2.0": old["1.2.0"], "1.2.5": _column("1.2.5", "-")}


@pytest.mark.parametrize("text", [None, "no markers"])
def test_a_page_without_a_place_is_refused_before_anything_is_measured(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(StagingError):
        compatibility.read(page)
    assert main(["fixes", "matrix", "--release", "1.2.0", "--write", str(page)]) == 2
    assert str(page) in capsys.readouterr().err


def _measures(monkeypatch: pytest.MonkeyPatch, column: Column) -> None:
    monkeypatch.setattr("deerflow_saver.cli.fixes._measure", lambda _: [column])


def _documented(release: str, **changed: str) -> Column:
    found = _columns()[release]
    cells = {**found.cells, **changed}
    return Column(release, found.versions, cells, {name: {"m": "seen"} for name in changed})


def test_a_check_ends_with_0_where_nothing_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    name = ALL[0].name
    _measures(monkeypatch, _documented("1.2.0", **{name: _columns()["1.2.0"].cells[name]}))
    assert main(["fixes", "matrix", "--check", str(PAGE)]) == 0


def test_a_check_names_what_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = ALL[0].name
    then = _columns()["1.2.0"].cells[name]
    now = "P" if then == "-" else "-"
    _measures(monkeypatch, _documented("1.2.0", **{name: now}))
    assert main(["fixes", "matrix", "--check", str(PAGE)]) == 1
    assert f"langgraph 1.2.0: {name}: measured {now}, expected {then}" in capsys.readouterr().err


def test_a_release_the_page_lacks_is_compared_with_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest = list(_columns())[-1]
    name = ALL[0].name
    column = _documented(newest, **{name: _columns()[newest].cells[name]})
    later = Column("1.99.0", column.versions, column.cells, column.evidence)
    _measures(monkeypatch, later)
    assert main(["fixes", "matrix", "--check", str(PAGE)]) == 0


def test_a_scenario_that_fails_itself_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _measures(monkeypatch, _documented("1.2.0", **{ALL[0].name: "?"}))
    assert main(["fixes", "matrix", "--json"]) == 1
    assert f"the scenario itself failed: {ALL[0].name}" in capsys.readouterr().err


def test_a_matrix_is_written_into_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    column = _column("1.2.30", "-")
    _measures(monkeypatch, column)
    assert main(["fixes", "matrix", "--write", str(page)]) == 0
    assert list(compatibility.read(page)) == [*known(), "1.2.30"]


def test_the_list_has_every_defect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fixes", "list"]) == 0
    text = capsys.readouterr().out
    assert main(["fixes", "list", "--json"]) == 0
    data: Any = json.loads(capsys.readouterr().out)
    assert [one["slug"] for one in data] == [defect.slug for defect in DEFECTS]
    assert all(one["symptom"] in text and one["advice"] in text for one in data)


def test_the_status_has_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["fixes", "status", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["slug"] for row in rows] == [defect.slug for defect in DEFECTS]
    assert main(["fixes", "status"]) == status
    assert status in {0, 1}


@pytest.mark.parametrize("saver", ["p", "ap"])
@pytest.mark.filterwarnings("ignore")
def test_the_probe_for_a_stored_none_says_what_a_database_shows(
    saver: str, postgres_database: str
) -> None:
    scenario = next(one for one in ALL if one.slug == "postgres-none-seed")
    cells = list(played([scenario], saver, postgres_database))
    row = next(row for row in fixes.status() if row.slug == scenario.slug)
    assert [one.outcome for one in cells] == [str(row.presence)]


def test_a_switch_that_names_no_fix_is_bad_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "no-such-fix")
    assert main(["fixes", "status"]) == 2
    assert main(["doctor"]) == 2
    assert "no-such-fix" in capsys.readouterr().err


REMEDIES = {
    "fixed": ("Patch", "InWrapper"),
    "refused": ("RefusedByGuard",),
    "reported": ("Advice",),
}


def test_the_page_says_of_every_case_what_is_really_done_about_it() -> None:
    part = PAGE.read_text().split("## Which defect")[1].split("## The matrix")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if "| `" in line]
    found = {row[1].strip("`"): row[2].split()[0].strip(":") for row in rows}
    assert len(found) == 11
    remedies = {defect.slug: type(defect.remedy).__name__ for defect in DEFECTS}
    assert [s for s, answer in found.items() if remedies[s] not in REMEDIES[answer]] == []


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of any release is this one."""
    monkeypatch.setattr("deerflow_saver.staging.matrix.environment", lambda *_, **__: installed())


def _none() -> Any:
    message = "no Postgres saver is played"
    raise AssertionError(message)


@pytest.mark.usefixtures("_here")
def test_an_environment_is_measured_as_this_process_is() -> None:
    said: list[str] = []
    there = measured("any", _none, savers=["m"], say=said.append)
    documented = _columns()[[n for n in _columns() if _number(n) <= _number(there.release)][-1]]
    assert differences(there, documented.cells) == []
    assert there.versions["langgraph"] == there.release
    assert said == [f"langgraph {there.release}: m"]


@pytest.mark.usefixtures("_here")
def test_scenarios_that_do_not_run_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deerflow_saver.staging.matrix._MODULE", "no_such_module")
    with pytest.raises(StagingError, match="No module named no_such_module"):
        measured("any", _none, savers=["m"])
