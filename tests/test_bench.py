"""The benchmark compares what it says it compares, and notices a wrong answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver._probe import traits_of

ROOT = Path(__file__).parents[1]
Saver = BaseCheckpointSaver[Any]
CHANNEL = "messages"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Saver]:
    from bench.counting import counting

    with counting(SqliteSaver).from_conn_string(str(tmp_path / "checkpoints.sqlite")) as saver:
        yield saver


def history(saver: Saver, config: Any) -> Any:
    return saver.get_delta_channel_history(config=config, channels=[CHANNEL])


def test_the_smoke_run_finds_all_answers_equal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for heading in ("History of the next turn's head", "A whole turn", "Calls to the saver"):
        assert heading in done.stdout


@pytest.mark.parametrize("start", ["root", "seeded"])
@pytest.mark.parametrize("depth", [10, 40])
def test_a_grown_thread_is_as_deep_as_asked(opened: Saver, start: Any, depth: int) -> None:
    from bench.scenarios import grow

    thread = grow(opened, "thread", start, depth, 2)
    head = opened.get_tuple(thread.config)
    entry = history(opened, head.config)[CHANNEL]
    assert len(entry["writes"]) == depth
    assert ("seed" in entry) == (start == "seeded")
    rows = list(opened.list(thread.config))
    assert len(rows) == 5 * thread.turns


def test_a_counting_saver_is_treated_as_the_saver_it_is(opened: Saver, tmp_path: Path) -> None:
    from bench.counting import calls_of

    with SqliteSaver.from_conn_string(str(tmp_path / "other.sqlite")) as plain:
        assert traits_of(opened).kind == traits_of(plain).kind == "storage"
        assert traits_of(opened).ordered == traits_of(plain).ordered
    config = {"configurable": {"thread_id": "nobody", "checkpoint_ns": ""}}
    opened.get_tuple(config)
    opened.get_tuple(config)
    assert calls_of(opened) == {"get_tuple": 2}
    assert calls_of(opened) == {}


def test_a_turn_in_steady_state_makes_one_get_tuple_and_no_history_call(opened: Saver) -> None:
    from bench.counting import calls_of
    from bench.scenarios import grow

    thread = grow(CachedHistorySaver(opened), "thread", "seeded", 20, 4)
    for _ in range(8):  # a snapshot falls among them
        calls_of(opened)
        thread.turn()
        calls = calls_of(opened)
        assert calls["get_tuple"] == 1
        assert calls["get_delta_channel_history"] == 0


def test_the_alternative_gives_the_raw_savers_answers(opened: Saver) -> None:
    from bench.alternative import AncestorCache
    from bench.scenarios import grow

    cache = AncestorCache(opened)
    thread = grow(cache, "thread", "seeded", 30, 1)
    rows = list(opened.list(thread.config))
    for row in [*rows, *reversed(rows)]:
        assert history(cache, row.config) == history(opened, row.config)


def test_the_alternative_reads_one_row_for_each_ancestor_it_does_not_know(opened: Saver) -> None:
    from bench.alternative import AncestorCache
    from bench.counting import calls_of
    from bench.scenarios import grow

    thread = grow(opened, "thread", "root", 100, 0)
    cache = AncestorCache(opened)
    heads = [row.config for row in opened.list(thread.config)]
    calls_of(opened)
    history(cache, heads[3])  # eight levels by rows, the ninth by one walk
    assert calls_of(opened) == {"get_tuple": 10, "get_delta_channel_history": 1}
    history(cache, heads[3])
    assert calls_of(opened) == {"get_tuple": 1}
    history(cache, heads[0])
    assert calls_of(opened) == {"get_tuple": 4}


def test_the_alternative_keeps_no_more_than_its_entries(opened: Saver) -> None:
    from bench.alternative import AncestorCache
    from bench.counting import calls_of
    from bench.scenarios import grow

    thread = grow(opened, "thread", "root", 150, 0)
    cache = AncestorCache(opened)
    heads = [row.config for row in opened.list(thread.config)]
    for head in reversed(heads):
        history(cache, head)
    calls_of(opened)
    history(cache, heads[-10])
    assert calls_of(opened)["get_tuple"] > 1


class Forgetful:
    """A cache that is wrong: it gives the first answer again, whatever is asked."""

    def __init__(self, inner: Saver, method: Callable[..., Any]) -> None:
        self._method = method
        self._answer: Any = None

    def __call__(self, **asked: Any) -> Any:
        if self._answer is None:
            self._answer = self._method(**asked)
        return self._answer


def test_a_wrong_answer_ends_the_run(opened: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import ab

    def wrong(saver: Saver) -> Saver:
        arm = ab.AncestorCache(saver)
        arm.get_delta_channel_history = Forgetful(saver, arm.get_delta_channel_history)
        return arm

    monkeypatch.setitem(ab.ARMS, "alternative", wrong)
    with pytest.raises(ab.Mismatch):
        ab.measure(opened, ab.Cell("sqlite", "root", 10), 1, warm_up=0)


def test_the_page_keeps_what_stands_around_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench import report

    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.write_page()
    text = page.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert "A whole turn" in text
    report.write_page()
    assert page.read_text() == text
