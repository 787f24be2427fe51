"""Full beside delta: what is measured, validated and summarised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deerflow_saver.bench.alternative import AncestorCache
from deerflow_saver.bench.channels import production, running
from deerflow_saver.bench.channels.cases import ChannelCase
from deerflow_saver.bench.channels.controlling import (
    MISMATCH,
    cell_name,
    cross_validated,
    left_over,
    run_cases,
)
from deerflow_saver.bench.channels.production_cases import ProductionCase
from deerflow_saver.bench.channels.running import benchmark_message
from deerflow_saver.bench.digests import Mismatch
from deerflow_saver.bench.rows import append
from deerflow_saver.bench.summaries import CHANNELS, PRODUCTION, summarised, summary_tables
from deerflow_saver.channel_mode import thawed
from deerflow_saver.state import CompiledGraphCache

DIGESTS = ("actual_message_count", "content_sha256")


def channel(mode: str = "delta", backend: str = "memory", **more: Any) -> ChannelCase:
    return ChannelCase(mode, backend, 12, 16, 1, 1, **more)


def talk(mode: str, frequency: int | None, **more: Any) -> ProductionCase:
    given = {"history_limits": (3, 200), "read_repetitions": 2, **more}
    return ProductionCase(mode, 5, 16, 1, 1, snapshot_frequency=frequency, **given)


def worked(work: Any, case: Any) -> dict[str, Any]:
    steps = work(case.as_dict())
    assert next(steps) == {"ready": True}
    row: dict[str, Any] = steps.send({})
    return row


def test_messages_have_the_size_and_the_ids_that_were_asked_for() -> None:
    first, second = benchmark_message(0, 7), benchmark_message(1, 7)
    assert (first.type, first.id, first.content) == ("human", "bench-message-00000000", "x" * 7)
    assert (second.type, second.id) == ("ai", "bench-message-00000001")


@pytest.mark.parametrize("cache", ["off", "memory"])
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_both_modes_end_in_the_messages_that_were_written(backend: str, cache: str) -> None:
    full, delta = (
        worked(running.work, channel(mode, backend, history_cache=cache, snapshot_frequency=5))
        for mode in ("full", "delta")
    )
    for row in (full, delta):
        assert row["actual_message_count"] == row["expected_message_count"] == 12
        assert row["write_rows"] > 0
        assert row["storage_stats_error"] is None
        assert row["write_total_ms"] > row["write_p99_ms"] >= row["write_p50_ms"] > 0
        assert (row["db_bytes"] is None) == (backend == "memory")
        assert (row["saver_reopen_ms"] == 0.0) == (backend == "memory")
        assert ("history_cache_cold_hits" in row) == (cache == "memory")
    assert full["content_sha256"] == delta["content_sha256"]
    assert full["logical_checkpoint_bytes"] > delta["logical_checkpoint_bytes"]


def test_sizes_that_cannot_be_had_do_not_fail_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise OSError("no such table")

    monkeypatch.setattr(running, "storage_stats", failing)
    row = worked(running.work, channel())
    assert row["storage_stats_error"] == "OSError: no such table"
    assert row["logical_checkpoint_bytes"] is None
    assert row["write_rows"] is None
    assert row["warm_read_ms"] > 0


class Losing(AncestorCache):
    """A cache that is wrong: it loses the newest write."""

    def get_delta_channel_history(self, **asked: Any) -> Any:
        found = super().get_delta_channel_history(**asked)
        return {name: {**entry, "writes": entry["writes"][:-1]} for name, entry in found.items()}


def test_a_read_that_loses_a_message_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CachedHistorySaver", Losing)
    with pytest.raises(Mismatch, match="warm_read"):
        worked(running.work, channel(history_cache="memory"))


def row(mode: str, *, digest: str = "a", success: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "benchmark": "checkpoint_channels",
        "mode": mode,
        "backend": "memory",
        "scenario": "append",
        "update_count": 10,
        "payload_bytes": 8,
        "snapshot_frequency": 10,
        "repetition": 1,
        "history_cache": "off",
        "success": success,
        "error": None if success else "timed out",
        "profiled": False,
        "actual_message_count": 10,
        "content_sha256": digest,
        "write_p50_ms": 2.0 if mode == "full" else 1.0,
        **more,
    }


def test_another_state_at_any_cadence_fails_the_whole_pair() -> None:
    rows = [
        row("full"),
        row("delta", snapshot_frequency=5),
        row("delta", snapshot_frequency=50, digest="b"),
        row("delta", snapshot_frequency=70, success=False),
    ]
    cross_validated(rows, DIGESTS)
    assert [r["error"] for r in rows] == [MISMATCH, MISMATCH, MISMATCH, "timed out"]
    assert not any(r["success"] for r in rows)


def test_equal_states_and_missing_partners_fail_nothing() -> None:
    rows = [row("full"), row("delta", digest="a"), row("delta", digest="b", success=False)]
    cross_validated(rows, DIGESTS)
    assert [r["success"] for r in rows] == [True, True, False]


def test_every_cadence_is_summarised_beside_the_one_full_row() -> None:
    rows = [
        row("full", write_p50_ms=4.0),
        row("delta", snapshot_frequency=100, write_p50_ms=1.0),
        row("delta", snapshot_frequency=20, write_p50_ms=2.0),
    ]
    found = summarised(rows, CHANNELS)
    assert [(r["snapshot_frequency"], r["ratio_write_p50_ms"]) for r in found] == [
        (20, 0.5),
        (100, 0.25),
    ]
    assert {r["paired_repetitions"] for r in found} == {1}


def test_medians_are_taken_over_pairs_and_inputs_never_meet() -> None:
    rows = []
    for number, (full, delta) in enumerate([(2.0, 1.0), (4.0, 3.0), (8.0, 2.0)]):
        rows.append({**row("full", write_p50_ms=full), "input": number})
        rows.append({**row("delta", write_p50_ms=delta), "input": number})
    rows.append({**row("full", write_p50_ms=1000.0), "input": 9})
    (found,) = summarised(rows, CHANNELS)
    assert found["paired_repetitions"] == 3
    assert (found["full_write_p50_ms"], found["delta_write_p50_ms"]) == (4.0, 2.0)
    assert found["ratio_write_p50_ms"] == 0.5


def test_failed_rows_are_counted_and_booleans_are_no_numbers() -> None:
    rows = [
        row("full", success=False, repetition=2),
        row("full", write_p50_ms=0, flag=True),
        row("delta", flag=True),
        row("delta", success=False, repetition=2),
    ]
    (found,) = summarised(rows, CHANNELS, ("write_p50_ms", "flag"))
    assert found["failed_rows"] == 2
    assert found["ratio_write_p50_ms"] is None
    assert "full_flag" not in found


def test_profiled_rows_are_left_out_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert summarised([row("full", profiled=True), row("delta")], CHANNELS) == []
    assert "Skipping 1 profiled row(s)" in capsys.readouterr().err
    assert summary_tables([row("full")]) == "(no comparable full/delta pairs)\n"


def test_pages_are_found_in_the_rows_and_ordered_by_their_size() -> None:
    shared = {
        "benchmark": "checkpoint_production",
        "turns": 10,
        "history_limit_50_cold_ms": 2.0,
        "history_limit_5_cold_ms": 1.0,
    }
    rows = [row(mode, **shared) for mode in ("full", "delta")]
    (found,) = summarised(rows, PRODUCTION)
    names = [name for name in found if name.startswith("ratio_history")]
    assert names == ["ratio_history_limit_5_cold_ms", "ratio_history_limit_50_cold_ms"]
    assert not any("history" in name for name in summarised(rows, PRODUCTION, ("turns",))[0])


# -- over HTTP


@pytest.mark.parametrize("cache", ["off", "memory"])
def test_a_conversation_says_the_same_over_http_in_both_modes(cache: str) -> None:
    rows = []
    for mode, frequency in (("full", None), ("delta", 3), ("delta", 1000)):
        with thawed():
            rows.append(worked(production.work, talk(mode, frequency, history_cache=cache)))
    for name in ("message_count", "state_wire_sha256", "history_wire_sha256"):
        assert len({row[name] for row in rows}) == 1, name
    assert len({row["seed_content_sha256"] for row in rows}) == 1
    for found in rows:
        assert found["message_count"] == 10
        assert found["wal_bytes"] > 0
        assert found["shm_bytes"] > 0
        assert 0 < found["checkpoint_write_p50_ms"] <= found["run_turn_p50_ms"]
        assert 0 < found["state_cold_saver_ms"] <= found["state_cold_ms"]
        assert {"history_limit_3_cold_ms", "history_limit_100_warm_p50_ms"} <= found.keys()


def test_a_warm_read_that_builds_a_graph_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(_self: Any, _key: Any, build: Any, **_: Any) -> Any:
        return build()

    monkeypatch.setattr(CompiledGraphCache, "aget", forgetful)
    with thawed(), pytest.raises(Mismatch, match="state: cache was not hit"):
        worked(production.work, talk("delta", 3))


def test_the_wire_digest_sees_what_is_next_and_every_field_of_a_message() -> None:
    message = {"type": "ai", "id": "1", "content": "x", "tool_calls": [], "additional_kwargs": {}}
    state = {"values": {"messages": [message]}, "next": []}
    others = [
        {**state, "next": ["model"]},
        *({**state, "values": {"messages": [{**message, name: "other"}]}} for name in message),
    ]
    digests = {production.wire_digest([each]) for each in [state, *others]}
    assert len(digests) == 1 + len(others)


def test_rows_are_kept_pair_by_pair(tmp_path: Path) -> None:
    output, profiles = tmp_path / "rows.jsonl", tmp_path / "profiles"
    cases = [channel("full"), channel("delta")]
    told: list[Any] = []
    rows = run_cases(
        "channels", cases, timeout=120, profiles=profiles, output=output, tell=told.append
    )
    assert told == cases
    assert [(r["mode"], r["error"]) for r in rows] == [("full", None), ("delta", None)]
    assert len(output.read_text().splitlines()) == 2
    assert all((profiles / f"{case.name}.prof").stat().st_size > 0 for case in cases)
    assert str(Path.home()) not in output.read_text()
    assert left_over(cases, output) == cases  # profiled rows are none that count


def test_pairs_that_are_kept_whole_are_not_measured_again(tmp_path: Path) -> None:
    pair = [channel("full"), channel("delta"), channel("delta", snapshot_frequency=50)]
    other = [ChannelCase("delta", "memory", 13, 16, 1, 1)]
    output = tmp_path / "rows.jsonl"
    assert left_over([*pair, *other], output) == [*pair, *other]
    rows = [{"cell": cell_name(case), "success": True} for case in pair]
    append(output, rows[:2])
    assert left_over([*pair, *other], output) == [*pair, *other]
    append(output, rows[2:])
    assert left_over([*pair, *other], output) == other
    append(output, [{**rows[0], "success": False}])  # measured again since, and failed
    assert left_over(pair, output) == pair
