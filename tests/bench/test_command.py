"""`deerflow-saver bench ab` and `channels`, and `python -m bench` of a checkout."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deerflow_saver.bench import servers as servers_module
from deerflow_saver.bench.page import BEGIN, END
from deerflow_saver.bench.servers import Servers
from deerflow_saver.bench.telling import telling
from deerflow_saver.cli.__main__ import main
from deerflow_saver.cli.errors import UsageError
from deerflow_saver.cli.postgres import VARIABLE
from support.upstream import reloads_what_ran

ROOT = Path(__file__).parents[2]
SMALL = ["--turns", "2", "--rounds", "1", "--warm-up", "1", "--scenarios", "polling"]


@pytest.mark.skipif(
    not reloads_what_ran(), reason="two runs of one conversation differ by their tasks' random ids"
)
@pytest.mark.timeout(600)
def test_the_smoke_run_finds_all_answers_equal(
    postgres_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, postgres_uri)
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells, states = (int(word) for word in done.stdout.split() if word.isdigit())
    assert cells > 30
    assert states > cells


def test_rows_are_kept_shown_and_not_measured_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "rows.jsonl"
    command = ["bench", "ab", *SMALL, "--backends", "memory", "--sides", "raw,memory"]
    command += ["--output", str(output), "--resume"]
    assert main(command) == 0
    assert "### polling" in capsys.readouterr().out
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["side"] for row in rows] == ["raw", "memory"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "1 case(s) are measured already" in said.err
    assert "### polling" in said.out
    assert len(output.read_text().splitlines()) == 2


def test_cases_over_the_cap_are_named_with_all_their_cells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["bench", "ab", *SMALL, "--backends", "memory,async-sqlite"]
    assert main([*command, "--max-estimated-bytes", "10"]) == 2
    said = capsys.readouterr().err
    # The alternative has no async face: three cells and two.
    assert "Skipping 2 case(s), 5 cell(s)" in said
    assert "memory-polling-turns-2" in said
    assert "nothing is left to measure" in said


def test_full_channels_over_the_cap_are_counted_in_pairs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["bench", "channels", "--updates", "10", "--snapshot-frequencies", "5,7"]
    assert main([*command, "--max-estimated-full-bytes", "10"]) == 2
    # On two backends and in three repetitions: one full case and two cadences each.
    assert "Skipping 6 pair(s), 18 case(s)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ab", "--backends", "own"], "go together"),
        (["ab", "--backends", "memory", "--saver", "a:b"], "go together"),
        (["ab", "--resume", *SMALL], "--resume needs --output"),
        (["ab", "--turns", "1,,2"], "--turns"),
        (["ab", "--sides", "raw,none"], "--sides"),
        (["ab", "--quick", "--standard"], "not allowed with"),
        (["channels", "--production", "--turns", "2"], "2-turn warm-up"),
        (["channels", "--production", "--updates", "2"], "--updates does not go with --prod"),
        (["channels", "--production", "--backends", "memory"], "--backends does not go with"),
        (["channels", "--production", "--allow-large-cases"], "--allow-large-cases does not go"),
        (["channels", "--turns", "3"], "--turns needs --production"),
        (["channels", "--history-limits", "3"], "--history-limits needs --production"),
        (["channels", "--read-repetitions", "3"], "--read-repetitions needs --production"),
        (["report"], "FILE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["psycopg", "langgraph.checkpoint.postgres"])
def test_postgres_without_its_extra_is_a_usage_error(
    missing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for name in (missing, "langgraph.checkpoint.postgres"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["bench", "ab", *SMALL, "--backends", "postgres", "--sides", "raw"]) == 2
    assert "deerflow-saver[bench]" in capsys.readouterr().err


OFFERED = """
from langgraph.checkpoint.memory import InMemorySaver
from deerflow_saver import CachedHistorySaver

class Broken(InMemorySaver):
    def put(self, *args):
        raise OSError("the disk is full")

def wrapped():
    return CachedHistorySaver(InMemorySaver())
"""


def test_a_failed_cell_makes_the_exit_status_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "offered_to_bench.py").write_text(OFFERED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["bench", "ab", *SMALL, "--saver", "offered_to_bench:Broken", "--sides", "raw"]
    assert main(command) == 1
    said = capsys.readouterr()
    assert "the disk is full" in said.err
    assert "Failed cells: 1 of 1." in said.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:saver", "No module named 'no_such_module'"),
        ("offered_to_bench:wrapped", "gives a CachedHistorySaver"),
    ],
)
def test_a_saver_that_cannot_be_measured_is_told_once(
    name: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "offered_to_bench.py").write_text(OFFERED)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["bench", "ab", *SMALL, "--saver", name]) == 2
    assert capsys.readouterr().err.count(said) == 1


def test_the_help_says_that_cadences_are_delta_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "channels", "--help"]) == 0
    assert "delta-only" in capsys.readouterr().out


def test_progress_tells_how_long_the_rest_will_take() -> None:
    stream, now = io.StringIO(), [0.0]
    with telling("bench", 4, stream, lambda: now[0]) as tell:
        for name, now[0] in (("a", 0.0), ("b", 100.0), ("c", 200.0)):
            tell(name)
    assert stream.getvalue() == (
        "bench: 1/4, 5:00 left, b, 100 s\nbench: 2/4, 3:20 left, c, 200 s\n"
    )


def test_a_server_of_its_own_gives_every_cell_an_empty_database() -> None:
    import redis

    with Servers() as running:
        with running.redis_database() as first, running.redis_database() as second:
            assert first != second
            with redis.Redis.from_url(first) as client:
                client.set("key", "value")
                assert client.dbsize() == 1
            with redis.Redis.from_url(second) as client:
                assert client.dbsize() == 0
        with redis.Redis.from_url(first) as client:
            assert client.dbsize() == 0


def test_a_redis_that_does_not_answer_is_a_usage_error() -> None:
    port = servers_module._free_port()
    with (
        Servers(redis_url=f"redis://127.0.0.1:{port}/3") as running,
        pytest.raises(UsageError, match="Redis does not answer"),
        running.redis_database(),
    ):
        pass


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    entry: Any = importlib.import_module("bench.__main__")
    for name, place in (("RESULTS", "results"), ("PAGE", "page.md"), ("PLOTS", "plots")):
        monkeypatch.setattr(entry, name, tmp_path / place)
    entry.PAGE.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    return entry


def test_a_checkouts_run_keeps_rows_and_rewrites_the_page(
    checkout: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {
        "ab": ["ab", *SMALL, "--backends", "memory", "--sides", "raw,memory"],
        "channels": ["channels", "--backends", "memory", "--updates", "3", "--repetitions", "1"],
    }
    monkeypatch.setattr(checkout, "STANDARD", parts)
    assert checkout.main(["--standard"]) == 0
    text = checkout.PAGE.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert "### polling" in text
    assert "### Full and delta channels" in text
    assert "(plots/peak-rss-bytes.png)" in text
    kept = {path.name: path.read_text() for path in checkout.RESULTS.iterdir()}
    assert sorted(kept) == ["ab.jsonl", "channels.jsonl"]
    assert checkout.main(["--standard", "--resume"]) == 0
    assert {path.name: path.read_text() for path in checkout.RESULTS.iterdir()} == kept
    assert "2 case(s) are measured already" in capsys.readouterr().err


def test_results_of_a_checkout_need_a_run_first(
    checkout: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checkout.main(["--report"]) == 1
    assert "--standard" in capsys.readouterr().err
