"""Rows become tables, records, plots and a verdict on each aim."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deerflow_saver.bench.aims import verdicts
from deerflow_saver.bench.case import Case
from deerflow_saver.bench.page import BEGIN, END
from deerflow_saver.bench.pairs import grouped
from deerflow_saver.bench.plots import write_plots
from deerflow_saver.bench.recording import Recorder
from deerflow_saver.bench.round_trips import ROUND_TRIPS
from deerflow_saver.bench.tables import ab_records, ab_tables
from deerflow_saver.cli.__main__ import main


def row(
    side: str,
    ms: list[float],
    *,
    case: Case | None = None,
    metric: str = "history",
    calls: dict[str, float] | None = None,
    **more: Any,
) -> dict[str, Any]:
    case = case or Case("sqlite", "agent", 20)
    samples = {"wall_ms": ms, "cpu_ms": [each / 2 for each in ms], "calls": calls or {}}
    return {
        "benchmark": "ab",
        "cell": f"{side} {case}",
        **case.as_dict(),
        "side": side,
        "success": True,
        "error": None,
        "profiled": False,
        "git_sha": "abc",
        "langgraph_version": "1.2.24",
        "metrics": {metric: samples},
        "depth": case.turns * 5,
        "peak_rss_bytes": 2**20,
        "hit_ratio": None,
        **more,
    }


def failed(side: str, **more: Any) -> dict[str, Any]:
    return {**row(side, [], **more), "success": False, "error": "timed out"}


ROWS = [row("raw", [10.0, 20.0, 30.0]), row("memory", [1.0, 2.0, 3.0], hit_ratio=1.0)]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return str(path)


def test_a_table_has_medians_ratios_and_intervals() -> None:
    text = ab_tables(ROWS)
    line = next(line for line in text.splitlines() if line.startswith("| sqlite | 100 | history"))
    assert "| 20.00 |" in line
    assert "| 0.10 (0.10 to 0.10) |" in line
    assert "≤ 0.15" in line
    assert "Failed cells: 0 of 2." in text


def test_calls_that_were_not_counted_are_no_zeros() -> None:
    recorder = Recorder(Counter())
    recorder.measure("state", lambda: None)
    recorder.add("new process", 0.1, 0.1)
    rows = [row(side, [1.0], metrics=recorder.as_dict()) for side in ("raw", "memory")]
    text = ab_tables(rows)
    assert "| sqlite, 100 writes | state | 0 + 0 + 0 | 0 + 0 + 0 |" in text
    assert "| sqlite, 100 writes | new process | - | - |" in text


def test_cpu_time_can_be_shown_instead() -> None:
    assert "| 10.00 |" in ab_tables(ROWS, "cpu")


def test_repetitions_are_paired_with_their_own_raw_cell() -> None:
    second = Case("sqlite", "agent", 20, repetition=2)
    rows = [*ROWS, row("raw", [1000.0], case=second), row("memory", [100.0], case=second)]
    (group,) = grouped(rows)
    assert len(group.samples("memory", "history")) == 4
    found = group.ratio("memory", "history")
    assert found is not None
    assert found.value == pytest.approx(0.1)
    (group,) = grouped([*ROWS, row("memory", [9000.0], case=second)])  # whose raw cell is missing
    found = group.ratio("memory", "history")
    assert found is not None
    assert found.value == pytest.approx(0.1)


def test_rows_of_two_files_never_pair() -> None:
    (group,) = grouped([{**ROWS[0], "input": 0}, {**ROWS[1], "input": 1}])
    assert group.ratio("memory", "history") is None


def test_failed_cells_are_counted_and_named() -> None:
    text = ab_tables([*ROWS, failed("alternative")])
    assert "Failed cells: 1 of 3." in text
    assert "alternative: timed out" in text


def test_profiled_rows_tell_nothing() -> None:
    assert grouped([{**each, "profiled": True} for each in ROWS]) == []


def test_records_hold_what_the_tables_show() -> None:
    raw, wrapped = ab_records([*ROWS, failed("alternative")])
    assert (raw["side"], raw["ratio"]) == ("raw", 1.0)
    assert wrapped["wall_p50_ms"] == 2.0
    assert wrapped["ratio"] == pytest.approx(0.1)
    assert wrapped["ratio_low"] <= wrapped["ratio"] <= wrapped["ratio_high"]
    assert wrapped["failed_cells"] == 1
    assert wrapped["samples"] == 3


def aims(rows: list[dict[str, Any]]) -> dict[str, tuple[float, bool]]:
    found = verdicts(grouped(rows), "wall")
    return {aim.what: (round(value, 3), aim.holds(value)) for aim, _, value in found}


def test_an_aim_that_is_missed_is_said_to_be() -> None:
    assert aims(ROWS) == {"history": (0.1, True)}
    assert aims([ROWS[0], row("memory", [9.0, 18.0, 27.0])]) == {"history": (0.9, False)}
    assert "**no**" in ab_tables([ROWS[0], row("memory", [9.0, 18.0, 27.0])])


def test_cases_with_another_axis_moved_have_no_aim() -> None:
    case = Case("sqlite", "agent", 20, payload_bytes=4096)
    assert aims([row(side, [1.0], case=case) for side in ("raw", "memory")]) == {}


def test_aims_beyond_times_are_judged_too() -> None:
    many = Case("sqlite", "threads", 100)
    held = Case("sqlite", "polling", 200)
    assert aims([row("memory", [1.0], case=many, hit_ratio=0.9)]) == {"hit ratio": (0.9, False)}
    rows = [
        row("raw", [1.0], case=held, held_bytes=100),
        row("memory", [1.0], case=held, held_bytes=200),
    ]
    assert aims(rows) == {"memory held": (2.0, True)}


def test_a_second_workers_first_read_is_judged_by_its_calls() -> None:
    case = Case("sqlite", "workers", 1000)
    calls = {"get_tuple": 2.0, "get_delta_channel_history": 1.0, ROUND_TRIPS: 1.0}
    shared = row(
        "two-tier",
        [1.0],
        case=case,
        metric="first read",
        calls=calls,
        redis_bytes=400,
        serialised_write_bytes=100,
    )
    assert aims([shared]) == {
        "inner calls of a first read": (2.0, False),
        "round trips of a first read": (1.0, True),
        "Redis bytes": (4.0, False),
    }


def test_plots_are_drawn_as_png_and_svg(tmp_path: Path) -> None:
    deeper = Case("sqlite", "agent", 200)
    rows = [*ROWS, row("raw", [50.0], case=deeper), row("memory", [3.0], case=deeper)]
    drawn = write_plots(grouped(rows), tmp_path / "plots")
    names = [path.name for path in drawn]
    assert names == ["agent-sqlite.png", "hit-ratio.png", "peak-rss-bytes.png"]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in path.with_suffix(".svg").read_text()


# -- the command


def test_the_command_fills_the_page_and_keeps_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, plots = tmp_path / "docs" / "page.md", tmp_path / "docs" / "plots"
    page.parent.mkdir()
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    rows = written(tmp_path / "rows.jsonl", ROWS)
    command = ["bench", "report", rows, "--write", str(page), "--plots", str(plots)]
    assert main(command) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "commit abc" in text
    assert "### agent" in text
    assert "![peak-rss-bytes](plots/peak-rss-bytes.png)" in text
    assert "old" not in text
    assert capsys.readouterr().out == ""
    assert main(command) == 0
    assert page.read_text() == text


def test_the_command_gives_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = written(tmp_path / "rows.jsonl", ROWS)
    assert main(["bench", "report", rows, "--json"]) == 0
    assert [r["side"] for r in json.loads(capsys.readouterr().out)] == ["raw", "memory"]
    assert main(["bench", "report", rows, "--csv"]) == 0
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [r["side"] for r in read] == ["raw", "memory"]
    assert main(["bench", "report", rows, "--csv", "--json"]) == 2


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("\n# only a comment\n", 1, "{path}: holds no row"),
        ("", 1, "{path}: holds no row"),
        ("{}\n", 1, "{path}: holds no row"),
        ('{"benchmark": "ab"}\n', 1, "{path}: holds no row"),
        ('{"benchmark": "checkpoint_channels", "mode": "full"}\n', 1, "{path}: holds no row"),
        ('{"benchmark": "ab"\n[1]\n', 1, "Malformed JSONL row(s):\n{path}:1: "),
    ],
    ids=["comment", "nothing", "no fields", "no case", "no group", "malformed"],
)
def test_without_rows_there_is_nothing_to_report(
    text: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    assert main(["bench", "report", str(path)]) == status
    printed = capsys.readouterr()
    assert printed.err.startswith(said.format(path=path))
    assert printed.out == ""
    assert ("Malformed" in said) == (f"{path}:2: not an object" in printed.err)


def test_a_file_without_rows_is_named_beside_one_that_has_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, empty = written(tmp_path / "rows.jsonl", ROWS), written(tmp_path / "empty.jsonl", [])
    assert main(["bench", "report", rows, empty]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{empty}: holds no row")
    assert main(["bench", "report", written(tmp_path / "mixed.jsonl", [*ROWS, {}])]) == 0
    printed = capsys.readouterr()
    assert "### agent" in printed.out
    assert "Skipping 1 row(s)" in printed.err


def test_a_missing_file_or_marker_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "report", str(tmp_path / "none.jsonl")]) == 2
    rows = written(tmp_path / "rows.jsonl", ROWS)
    page = tmp_path / "page.md"
    page.write_text("no markers")
    assert main(["bench", "report", rows, "--write", str(page)]) == 2
    assert "lacks the markers" in capsys.readouterr().err
