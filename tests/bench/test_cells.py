"""Cells run in lockstep, are compared, and fail alone or in pairs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deerflow_saver.bench import lockstep, stage
from deerflow_saver.bench.alternative import AncestorCache
from deerflow_saver.bench.case import SCENARIOS, Case
from deerflow_saver.bench.child import Child
from deerflow_saver.bench.errors import ChildError
from deerflow_saver.bench.lockstep import MISMATCH, Outcome, mismatched, run_case
from deerflow_saver.bench.round_trips import ROUND_TRIPS
from deerflow_saver.bench.rows import GIT_SHA_VARIABLE, load
from deerflow_saver.bench.running import Run, cell_name, done_already
from deerflow_saver.bench.servers import Servers
from deerflow_saver.bench.sides import make
from deerflow_saver.bench.stage import Cell

SIDES = ("raw", "memory", "alternative")
OWN = """
import os
from langgraph.checkpoint.sqlite import SqliteSaver

def saver():
    print("what a factory prints is no answer")
    return SqliteSaver.from_conn_string("own.sqlite")

def dies():
    os.write(2, b"no such luck\\n")
    os._exit(3)
"""


def small(scenario: str, backend: str = "sqlite", **more: Any) -> Case:
    return Case(backend, scenario, 4, snapshot_frequency=7, rounds=2, warm_up=1, threads=3, **more)


@pytest.fixture
def servers(postgres_uri: str) -> Iterator[Servers]:
    with Servers(postgres_uri, own="own_savers:saver") as running:
        yield running


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_savers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def here(case: Case, servers: Servers, sides: tuple[str, ...] = SIDES) -> list[Outcome]:
    return run_case(case, sides, servers, timeout=60, here=True)


# Those that start processes of their own are covered by the command's smoke run.
@pytest.mark.parametrize("scenario", sorted(set(SCENARIOS) - {"cold", "workers"}))
def test_all_sides_of_a_scenario_read_the_same(scenario: str, servers: Servers) -> None:
    outcomes = here(small(scenario), servers)
    assert [(o.side, o.error) for o in outcomes] == [(side, None) for side in SIDES]
    assert outcomes[0].figures["states"] > 0
    for outcome in outcomes:
        assert outcome.figures["metrics"]
        for samples in outcome.figures["metrics"].values():
            assert len(samples["wall_ms"]) == len(samples["cpu_ms"]) >= 2
            assert min(samples["wall_ms"]) > 0


@pytest.mark.parametrize("backend", ["memory", "postgres", "async-sqlite", "async-postgres"])
def test_every_backend_and_parallel_writers(backend: str, servers: Servers) -> None:
    outcomes = here(small("agent", backend, writers=3), servers, ("raw", "memory"))
    assert [o.error for o in outcomes] == [None, None]
    raw, wrapped = (o.figures["metrics"]["turn"] for o in outcomes)
    assert len(raw["wall_ms"]) == 2
    assert raw["calls"]["get_tuple"] == 3
    assert wrapped["calls"].get("get_delta_channel_history", 0) == 0


def test_the_wrapper_is_asked_for_its_hits_and_its_memory(servers: Servers) -> None:
    raw, wrapped = here(small("polling"), servers, ("raw", "memory"))
    assert wrapped.figures["hit_ratio"] == 1.0
    assert wrapped.figures["cache"]["hits"] > 0
    assert raw.figures["cache"] is None
    assert raw.figures["held_bytes"] > 0
    assert wrapped.figures["held_bytes"] > 0
    assert raw.figures["peak_rss_bytes"] > 2**20


class Forgetful(AncestorCache):
    """A cache that is wrong: it gives the first answer again, whatever is asked."""

    _answer: Any = None

    def get_delta_channel_history(self, **asked: Any) -> Any:
        if self._answer is None:
            self._answer = super().get_delta_channel_history(**asked)
        return self._answer


def test_a_wrong_answer_fails_its_cell(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(side: str, raw: Any, **more: Any) -> Any:
        return Forgetful(raw) if side == "alternative" else make(side, raw, **more)

    monkeypatch.setattr(stage, "make", made)
    raw, wrapped, wrong = here(small("forks"), servers)
    assert raw.success
    assert wrapped.success
    assert wrong.error is not None
    assert "Mismatch" in wrong.error


def test_another_digest_fails_the_cell_and_all_it_was_compared_with() -> None:
    same = {"digest": "a", "states": 1}
    outcomes = [
        Outcome("raw", dict(same)),
        Outcome("memory", {"digest": "b", "states": 1}),
        Outcome("alternative", error="timed out"),
    ]
    assert [o.error for o in mismatched(outcomes)] == [MISMATCH, MISMATCH, "timed out"]
    outcomes = [Outcome("raw", dict(same)), Outcome("memory", dict(same))]
    assert [o.error for o in mismatched(outcomes)] == [None, None]


def test_cells_take_turns_at_going_first(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int]] = []

    class Noting(lockstep.Here):
        def __init__(self, work: Any) -> None:
            super().__init__(work)
            self.side = SIDES[len(made)]
            made.append(self)

        def send(self, command: Any) -> None:
            super().send(command)
            if "round" in command:
                order.append((self.side, command["round"]))

    made: list[Noting] = []
    monkeypatch.setattr(lockstep, "Here", Noting)
    here(small("polling", "memory"), servers)
    assert [side for side, number in order if number == 0] == ["raw", "memory", "alternative"]
    assert [side for side, number in order if number == 1] == ["memory", "alternative", "raw"]
    assert [side for side, number in order if number == 2] == ["alternative", "raw", "memory"]


def test_a_users_own_saver_is_measured_in_processes_and_left_empty(
    own: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GIT_SHA_VARIABLE, "abc")
    rows_file, profiles = own / "results" / "rows.jsonl", own / "profiles"
    case = small("agent", "own")
    run = Run(("raw", "memory"), timeout=120, profiles=profiles, output=rows_file)
    told: list[Case] = []
    rows = run.run([case], servers, told.append)
    assert told == [case]
    assert [(row["side"], row["error"]) for row in rows] == [("raw", None), ("memory", None)]
    assert [json.loads(line) for line in rows_file.read_text().splitlines()] == rows
    for row in rows:
        assert row["success"]
        assert row["profiled"]
        assert row["git_sha"] == "abc"
        assert row["saver"] == "SqliteSaver"
        assert row["metrics"]["turn"]["calls"]["put"] == 5
        assert row["child_process_ms"] > 0
        assert row["langgraph_version"]
        assert (profiles / f"{case}-{row['side']}.prof").stat().st_size > 0
    with closing(sqlite3.connect(own / "own.sqlite")) as connection, connection:
        assert connection.execute("SELECT COUNT(*) FROM checkpoints").fetchone() == (0,)
        assert connection.execute("SELECT COUNT(*) FROM writes").fetchone() == (0,)
    connection.close()


def test_a_cell_that_dies_or_hangs_leaves_the_reason(own: Path) -> None:
    dying = Child("cell", Cell(small("agent", "own"), "raw", "own_savers:dies"), timeout=60)
    with pytest.raises(ChildError, match="returned 3 without a result: no such luck"):
        dying.answer()
    hanging = Child("cell", Cell(small("agent", "memory"), "raw"), timeout=0.01)
    with pytest.raises(ChildError, match=r"child process timed out after 0\.01 seconds"):
        hanging.answer()
    hanging.close()  # again: it does no harm


def test_a_failed_cell_fails_alone(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(side: str, raw: Any, **more: Any) -> Any:
        if side == "alternative":
            raise OSError("out of order")
        return make(side, raw, **more)

    monkeypatch.setattr(stage, "make", made)
    outcomes = here(small("polling", "memory"), servers)
    assert [o.error for o in outcomes] == [None, None, "OSError: out of order"]


# -- resuming


def rows_of(case: Case, sides: tuple[str, ...], **more: Any) -> str:
    rows = [
        {
            "cell": cell_name(case, side),
            **case.as_dict(),
            "side": side,
            "success": True,
            "profiled": False,
            "git_sha": "abc",
            **more,
        }
        for side in sides
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("kept", "more", "left"),
    [
        (("raw", "memory"), {}, False),
        (("raw",), {}, True),
        (("raw", "memory"), {"success": False}, True),
        (("raw", "memory"), {"profiled": True}, True),
        (("raw", "memory", "alternative"), {}, False),
    ],
    ids=["all sides", "one missing", "failed", "profiled", "more"],
)
def test_a_case_is_done_when_all_its_sides_succeeded(
    tmp_path: Path, kept: tuple[str, ...], more: dict[str, Any], left: bool
) -> None:
    case, output = small("agent"), tmp_path / "rows.jsonl"
    assert done_already([case], ("raw", "memory"), output) == ([case], [])
    output.write_text(rows_of(case, kept, **more))
    found, commits = done_already([case], ("raw", "memory"), output)
    assert found == ([case] if left else [])
    assert commits == ([] if left else ["abc"])


def test_a_cell_that_was_measured_again_counts_once(tmp_path: Path) -> None:
    case, output = small("agent"), tmp_path / "rows.jsonl"
    failed = rows_of(case, ("raw",), success=False)
    output.write_text(f"# a comment\n\n{failed}{rows_of(case, ('raw',))}")
    (row,) = load([output])
    assert row["success"]
    assert row["input"] == 0
    both = load([output, output])
    assert [row["input"] for row in both] == [0, 1]


def test_workers_meet_in_redis(servers: Servers) -> None:
    raw, shared = here(small("workers"), servers, ("raw", "two-tier"))
    assert [raw.error, shared.error] == [None, None]
    assert shared.figures["policy"] == "refuse"
    first = shared.figures["metrics"]["first read"]["calls"]
    assert 0 < first[ROUND_TRIPS] <= 1  # none where the head stores a snapshot
    assert first["get_tuple"] == 1
    assert "get_delta_channel_history" not in first
    assert shared.figures["redis_bytes"] > 0
    # 4 turns, 3 rounds of two turns, and the last; 5 messages of more than 128 bytes each
    assert shared.figures["serialised_write_bytes"] > (4 + 2 * 3 + 1) * 5 * 128
    assert raw.figures["redis_bytes"] is None
