"""How a miss is planned, with scripted answers instead of a saver."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._plan import drive
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.reader import (
    COUNTERS,
    Flights,
    Reading,
    Result,
    always_delta,
    depths_of,
    read,
)
from deerflow_saver.history.segment import View

SERDE = JsonPlusSerializer()


def row(cid: str, parent: str | None, *own: Any, stored: Any = None) -> Any:
    return SimpleNamespace(
        checkpoint={
            "id": cid,
            "channel_values": {} if stored is None else {"c": stored},
            "channel_versions": {"c": 1},
        },
        parent_config=None if parent is None else {"configurable": {"checkpoint_id": parent}},
        pending_writes=[(f"task {value}", "c", value) for value in own],
    )


@dataclass
class Saver:
    """Answers requests from a script and notes them."""

    rows: dict[str, Any] = field(default_factory=dict)
    history: dict[str, Any] = field(default_factory=lambda: {"writes": []})
    rooted: bool = True
    asked: list[Any] = field(default_factory=list)

    def calls(self) -> dict[str, Any]:
        return {
            "get_tuple": self._get_tuple,
            "history": self._history,
            "rooted": self._rooted,
        }

    def _get_tuple(self, config: Any) -> Any:
        cid = config["configurable"]["checkpoint_id"]
        self.asked.append(cid)
        return self.rows.get(cid)

    def _history(self, channels: Any) -> Any:
        self.asked.append("history")
        return {name: dict(self.history) for name in channels}

    def _rooted(self, place: Any) -> bool:
        self.asked.append("rooted")
        return self.rooted


def reading(cid: str, **options: Any) -> Reading:
    settings: dict[str, Any] = {"kind": "storage", "provable": True, "proof_is_cheap": True}
    settings.update(options)
    return Reading(
        place="thread",
        checkpoint_id=cid,
        channels=("c",),
        token="t",
        make_view=lambda: View(SERDE, "safe"),
        config_of=lambda c: {"configurable": {"checkpoint_id": c}},
        on_error=pytest.fail,
        flight_key=cid,
        **settings,
    )


def chain_of(*, known: tuple[str, str | None, int] | None = None, depth: int = 100) -> Chain:
    chain = Chain({"c": 0}, ordered=True, seeds_by_version=False)
    if known is not None:
        cid, parent, step = known
        chain.seen(cid, parent, [], [], versions={}, step=step, depth=depth, had_child=False)
    return chain


def ask(chain: Chain, saver: Saver, wanted: Reading) -> Result:
    return drive(read(lambda: chain, wanted, Flights()), saver.calls())


def values(result: Result) -> list[Any]:
    return [value for _, _, value in result.history["c"]["writes"]]


SEEDED = {"writes": [("t", "c", "w1"), ("t", "c", "w2")], "seed": _DeltaSnapshot(["s"])}


def test_a_cold_read_is_one_walk_and_the_next_one_is_served() -> None:
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=SEEDED)
    first, second = (ask(chain, saver, reading("5")) for _ in range(2))
    assert saver.asked == ["history"]
    assert (first.outcome, second.outcome) == ("walk", "hit")
    assert first.history == second.history


def test_a_cold_walk_gives_the_savers_own_objects() -> None:
    seed = _DeltaSnapshot(["s"])
    saver = Saver(history={"writes": [("t", "c", ["w"])], "seed": seed})
    result = ask(chain_of(), saver, reading("5"))
    assert result.history["c"]["seed"] is seed


def test_without_a_seed_rootedness_is_proven_before_the_walk() -> None:
    chain, saver = chain_of(known=("5", "4", 5)), Saver(history={"writes": [("t", "c", "w")]})
    ask(chain, saver, reading("5"))
    ask(chain, saver, reading("5"))
    assert saver.asked == ["rooted", "history"]


def test_a_history_whose_root_is_not_proven_is_asked_for_each_time() -> None:
    saver = Saver(history={"writes": [("t", "c", "w")]}, rooted=False)
    chain = chain_of(known=("5", "4", 5))
    for _ in range(2):
        ask(chain, saver, reading("5"))
    assert saver.asked == ["rooted", "history"] * 2


def test_where_the_counters_tell_of_a_snapshot_no_proof_is_asked_for_beforehand() -> None:
    chain = chain_of(known=("5", "4", 505))
    saver = Saver(history={"writes": [("t", "c", "w")]})
    for _ in range(3):
        ask(chain, saver, reading("5"))
    assert saver.asked == ["history", "rooted", "history"]


@pytest.mark.parametrize(("depth", "first"), [(10, ["history"]), (100, ["rooted", "history"])])
def test_a_dear_proof_waits_for_a_deep_or_a_second_walk(depth: int, first: list[str]) -> None:
    saver = Saver(history={"writes": [("t", "c", "w")]})
    chain = chain_of(known=("5", "4", 5), depth=depth)
    ask(chain, saver, reading("5", proof_is_cheap=False))
    assert saver.asked == first
    saver.asked.clear()
    ask(chain, saver, reading("5", proof_is_cheap=False))
    ask(chain, saver, reading("5", proof_is_cheap=False))
    assert saver.asked == ([] if depth == 100 else ["rooted", "history"])


def test_a_few_missing_rows_are_read_where_the_walk_would_be_deep() -> None:
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=SEEDED)
    ask(chain, saver, reading("5"))
    saver.asked.clear()
    saver.rows = {"5": row("5", "4", "w5"), "6": row("6", "5", "w6")}
    chain.seen("7", "6", [], [], versions={}, step=507, depth=100, had_child=False)
    result = ask(chain, saver, reading("7"))
    assert saver.asked == ["6", "5"]
    assert (result.outcome, result.fetches) == ("composed", 2)
    assert values(result) == ["w1", "w2", "w5", "w6"]


@pytest.mark.parametrize(
    ("depth", "step"), [(10, 507), (100, 590)], ids=["shallow walk", "too many rows"]
)
def test_otherwise_the_saver_walks(depth: int, step: int) -> None:
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=SEEDED)
    ask(chain, saver, reading("5"))
    saver.asked.clear()
    chain.seen("7", "6", [], [], versions={}, step=step, depth=depth, had_child=False)
    assert ask(chain, saver, reading("7")).outcome == "walk"
    assert saver.asked == ["history"]


@pytest.mark.parametrize("by_task", [True, False])
def test_a_row_that_is_read_counts_in_the_order_of_the_savers_history(by_task: bool) -> None:
    rows = {"5": row("5", "4"), "4": row("4", "3", "b", "a", stored=_DeltaSnapshot(["s"]))}
    result = ask(chain_of(), Saver(rows=rows), reading("5", kind="tuples", by_task=by_task))
    assert result.outcome == "composed"
    assert values(result) == (["a", "b"] if by_task else ["b", "a"])


def test_a_plain_seed_is_left_to_a_saver_that_treats_it_in_a_way_of_its_own() -> None:
    rows = {"5": row("5", "4"), "4": row("4", "3", "own", stored=["plain"])}
    saver = Saver(rows=rows, history={"writes": [], "seed": ["plain"]})
    result = ask(chain_of(), saver, reading("5", kind="tuples", plain_seeds=False))
    assert result.outcome == "walk"
    assert values(result) == []


def test_catching_up_that_does_not_meet_what_is_known_ends_in_a_walk() -> None:
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=SEEDED)
    ask(chain, saver, reading("5"))
    saver.asked.clear()
    saver.rows = {"6": row("6", "fork", "w6")}
    chain.seen("7", "6", [], [], versions={}, step=507, depth=100, had_child=False)
    assert ask(chain, saver, reading("7")).outcome == "walk"
    assert saver.asked == ["6", "fork", "history"]


def test_where_the_walk_is_the_base_classes_rows_are_read_to_the_root() -> None:
    chain = chain_of(known=("3", "2", 3), depth=0)
    saver = Saver(rows={"2": row("2", "1", "w2"), "1": row("1", None, "w1")})
    result = ask(chain, saver, reading("3", kind="tuples", provable=False))
    assert values(result) == ["w1", "w2"]
    assert saver.asked == ["2", "1"]
    assert ask(chain, saver, reading("3", kind="tuples")).outcome == "hit"


def test_where_the_walk_is_the_base_classes_a_missing_row_is_answered_but_not_kept() -> None:
    chain = chain_of(known=("3", "2", 3), depth=0)
    saver = Saver(rows={"2": row("2", "1", "w2")}, history={"writes": [("t", "c", "w2")]})
    for _ in range(2):
        assert values(ask(chain, saver, reading("3", kind="tuples", provable=False))) == ["w2"]
    assert saver.asked == ["2", "1", "history"] * 2


def test_a_foreign_history_method_is_never_second_guessed() -> None:
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=SEEDED)
    ask(chain, saver, reading("5", kind="opaque", provable=False))
    chain.seen("6", "5", [], [], versions={}, step=506, depth=100, had_child=False)
    assert ask(chain, saver, reading("6", kind="opaque", provable=False)).outcome == "walk"
    assert ask(chain, saver, reading("5", kind="opaque", provable=False)).outcome == "hit"
    assert saver.asked == ["history", "history"]


def test_what_was_read_while_the_chain_forgot_is_not_kept() -> None:
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=SEEDED)
    calls = saver.calls()
    walk = calls["history"]

    def forgetting(channels: Any) -> Any:
        chain.clear()
        return walk(channels)

    drive(read(lambda: chain, reading("5"), Flights()), {**calls, "history": forgetting})
    assert ask(chain, saver, reading("5")).outcome == "walk"


def test_a_chain_in_doubt_is_passed_by() -> None:
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=SEEDED)
    ask(chain, saver, reading("5"))
    chain.distrust(60)
    ask(chain, saver, reading("5"))
    assert saver.asked == ["history", "history"]


@pytest.mark.parametrize(
    ("counters", "depth"),
    [
        ({"a": (1, 7), "b": [2, 9]}, 9),
        ({}, 0),
        (None, None),
        ("odd", None),
        ({"a": 3}, None),
        ({"a": ("x", "y")}, None),
    ],
)
def test_depth_is_read_from_langgraphs_counters(counters: Any, depth: int | None) -> None:
    assert depths_of({"counters_since_delta_snapshot": counters})[0] == depth


def test_objects_that_a_finished_run_left_in_a_cycle_are_given_again() -> None:
    many = {"writes": [(f"t{i}", "c", [f"w{i}"]) for i in range(80)], "seed": _DeltaSnapshot([])}
    chain, saver = chain_of(known=("5", "4", 505)), Saver(history=many)
    given = []
    for _ in range(5):
        cycle: list[Any] = [ask(chain, saver, reading("5"))]
        cycle.append(cycle)
        given.append(id(cycle[0].history["c"]["writes"][0][2]))
        del cycle
    assert given[-1] == given[-2] == given[-3]
    assert saver.asked == ["history"]


@pytest.mark.parametrize(
    ("metadata", "channels"),
    [
        ({"step": 2, COUNTERS: {"a": (3, 4), "b": (3, 3)}}, {"a"}),  # b began a step later
        ({"step": -1, COUNTERS: {"a": [0, 1]}}, {"a"}),
        ({"step": 2, COUNTERS: {"a": (1,)}}, set()),
        ({"step": 2}, set()),
        ({"step": None, COUNTERS: {"a": (3, 4)}}, set()),
        ({COUNTERS: {"a": (3, 4)}}, set()),
    ],
)
def test_a_channel_was_always_delta_if_its_counter_covers_every_step(
    metadata: dict[str, Any], channels: set[str]
) -> None:
    assert always_delta(metadata) == channels
