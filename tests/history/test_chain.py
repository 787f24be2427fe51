"""The chain's bookkeeping, without any saver: what is learnt, composed and forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver.history.chain import Chain, Fetched, Need
from deerflow_saver.history.facts import ABSENT, HELD, ChainBusy, Packed, Row
from deerflow_saver.history.segment import Position, View

SERDE = JsonPlusSerializer()


def packed(value: Any) -> Packed:
    return Packed(*SERDE.dumps_typed(value))


class Thread:
    """A chain with the few calls a saver would make, and its one view."""

    def __init__(
        self, *, ordered: bool = True, by_version: bool = False, by_task: bool = False
    ) -> None:
        self.time = 0
        self.chain = Chain(
            {"c": 0},
            ordered=ordered,
            seeds_by_version=by_version,
            by_task=by_task,
            clock=lambda: self.time,
        )
        self.version = 0
        self._minted: dict[str, int] = {}

    @property
    def view(self) -> View:
        return self.chain.view("t", lambda: View(SERDE, "safe"))

    def put(
        self, cid: str, parent: str | None, *, snapshot: Any = None, fresh: bool = True,
        wrote: bool = True, witnessed: Any = None,
    ) -> None:  # fmt: skip
        clean = self.chain.begin_put(cid)
        self.version += wrote
        if clean:
            self.chain.born(
                cid,
                parent,
                {"c": ABSENT if snapshot is None else packed(_DeltaSnapshot(snapshot))},
                versions={"c": self.version},
                new_versions={"c": self.version} if wrote else {},
                step=int(cid),
                depth=1,
                minted=self.minted(cid) if fresh else None,
                witnessed=witnessed,
            )
        self.chain.end_put(cid, clean=clean)

    def minted(self, cid: str) -> int:
        """Ids are made when they are first named."""
        self.time += 1
        return self._minted.setdefault(cid, self.time)

    def write(self, cid: str, *values: Any, task: str = "t", path: str = "") -> None:
        self.minted(cid)
        writing = self.chain.begin_rows(cid, ["c"])
        assert writing is not None
        rows = [Row(path, task, i, "c", packed(v)) for i, v in enumerate(values)]
        self.chain.end_rows(cid, writing, rows)

    def saw(self, cid: str, parent: str | None, *tasks: str, stored: bool = False) -> None:
        self.chain.seen(
            cid,
            parent,
            ["c"] if stored else [],
            [(task, "c", None) for task in tasks],
            versions={"c": self.version},
            step=int(cid),
            depth=1,
            had_child=self.chain.has_child(cid),
        )

    def answer(self, cid: str, **fetched: Fetched) -> Any:
        rows = {name.lstrip("_"): row for name, row in fetched.items()}
        found = self.chain.compose(self.view, cid, "c", rows)
        if isinstance(found, list):
            return found
        return self.taken(found)

    @staticmethod
    def taken(position: Position) -> tuple[Any, list[Any]]:
        seed = position.segment.seed
        values = [value for _, _, value in position.segment.take(position.length)]
        return None if seed is None else seed.take(), values


def line(count: int = 4, **options: Any) -> Thread:
    thread = Thread(**options)
    thread.put("1", None)
    for i in range(2, count + 1):
        thread.write(str(i - 1), f"w{i - 1}")
        thread.put(str(i), str(i - 1))
    return thread


def test_history_is_the_parents_plus_the_parents_own_writes() -> None:
    thread = line()
    assert thread.answer("4") == (None, ["w1", "w2", "w3"])
    assert thread.answer("2") == (None, ["w1"])
    assert thread.answer("1") == (None, [])


def test_own_writes_of_the_target_are_not_part_of_its_history() -> None:
    thread = line(2)
    thread.write("2", "pending")
    assert thread.answer("2") == (None, ["w1"])


@pytest.mark.parametrize("by_version", [False, True])
def test_a_snapshot_starts_a_new_history(*, by_version: bool) -> None:
    thread = line(3, by_version=by_version)
    thread.write("3", "w3")
    thread.put("4", "3", snapshot=["s"])
    thread.write("4", "w4")
    thread.put("5", "4")
    assert thread.answer("5") == (_DeltaSnapshot(["s"]), ["w4"])
    assert thread.answer("4") == (None, ["w1", "w2", "w3"])


def test_a_snapshot_found_by_version_serves_children_that_did_not_write() -> None:
    thread = line(2, by_version=True)
    thread.write("2", "w2")
    thread.put("3", "2", snapshot=["s"])
    thread.put("4", "3", wrote=False)
    thread.write("4", "w4")
    thread.put("5", "4")
    assert thread.answer("4") == (_DeltaSnapshot(["s"]), [])
    assert thread.answer("5") == (_DeltaSnapshot(["s"]), ["w4"])


def test_parallel_writes_come_in_path_order_and_the_first_of_a_slot_wins() -> None:
    thread = line(1)
    thread.write("1", "b", task="a-later", path="~2")
    thread.write("1", "a", task="z-first", path="~1")
    thread.write("1", "again", task="z-first", path="~1")
    thread.put("2", "1")
    assert thread.answer("2") == (None, ["a", "b"])


def test_where_the_savers_order_is_unknown_only_agreeing_orders_are_used() -> None:
    thread = Thread(ordered=False)
    thread.put("1", None)
    thread.write("1", "a", task="b", path="~1")
    thread.write("1", "b", task="a", path="~2")
    thread.put("2", "1")
    assert thread.answer("2") == [Need("1", known=True)]


def test_a_saver_without_path_order_replays_langgraphs_tasks_by_id() -> None:
    thread = Thread(ordered=False, by_task=True)
    thread.put("1", None)
    for first, path in (("b", "~1"), ("a", "~2")):
        task = f"{first}0000000-0000-0000-0000-000000000000"
        thread.write("1", first, task=task, path=path)
    thread.put("2", "1")
    assert thread.answer("2") == (None, ["a", "b"])


def test_a_fork_shares_the_prefix_and_leaves_the_other_branch_alone() -> None:
    thread = line(3)
    thread.write("3", "w3")
    thread.put("4", "3")
    assert thread.answer("4") == (None, ["w1", "w2", "w3"])
    found = thread.chain.compose(thread.view, "3", "c", {})
    assert isinstance(found, Position)
    branch = found.segment.fork(1)
    branch.extend([("x", "c", "other")])
    assert thread.taken(Position(branch, 2)) == (None, ["w1", "other"])
    assert thread.answer("4") == (None, ["w1", "w2", "w3"])


def test_a_write_on_a_checkpoint_that_has_a_child_forgets_everything() -> None:
    thread = line()
    thread.answer("4")
    thread.write("2", "late")
    assert thread.answer("4") == [Need("4", known=False)]


def test_a_write_on_an_older_leaf_forgets_too() -> None:
    thread = line()
    thread.saw("05", "1")
    thread.write("05", "branch")
    assert thread.answer("4") == [Need("4", known=False)]


def test_a_put_over_a_known_id_forgets_everything() -> None:
    thread = line()
    thread.put("2", None)
    assert thread.answer("4") == [Need("4", known=False)]


def test_a_put_over_a_parent_that_is_known_by_its_child_alone_forgets_everything() -> None:
    thread = Thread()
    thread.put("1", "5")
    assert not thread.chain.begin_put("5")
    assert not thread.chain.knows("1")


def test_writes_before_their_checkpoint_is_put_belong_to_it() -> None:
    thread = line(2)
    thread.write("3", "early")
    thread.write("2", "w2")
    thread.put("3", "2")
    thread.put("4", "3")
    assert thread.answer("4") == (None, ["w1", "w2", "early"])


def test_writes_on_a_checkpoint_that_is_never_put_are_late_ones_at_the_next_read() -> None:
    thread = line()
    thread.write("0", "on an old unknown checkpoint")
    thread.chain.settle()
    assert thread.answer("4") == [Need("4", known=False)]


def test_a_checkpoint_of_unknown_age_must_be_read_for_its_own_writes() -> None:
    thread = line(2)
    thread.put("3", "2", fresh=False)
    thread.put("4", "3")
    assert thread.answer("4") == [Need("3", known=False)]
    row = Fetched("2", {}, [("x", "c", "there before"), ("t", "c", "w3")])
    assert thread.answer("4", _3=row) == [Need("2", known=True)]
    before = Fetched("1", {}, [])
    assert thread.answer("4", _3=row, _2=before) == (None, ["w1", "there before", "w3"])


def test_writes_that_passed_before_a_channel_was_recorded_are_not_taken_for_none() -> None:
    thread = Thread()
    thread.chain.untrack(["c"])
    thread.minted("1")
    assert thread.chain.begin_rows("1", ["c"]) is None
    thread.chain.track(["c"])
    thread.put("1", None)
    thread.put("2", "1")
    assert thread.answer("2") == [Need("1", known=False)]


def test_writes_recorded_before_everything_was_forgotten_are_not_taken_for_none() -> None:
    thread = Thread()
    thread.write("1", "early")
    thread.chain.clear()
    thread.put("1", None)
    thread.put("2", "1")
    assert thread.answer("2") == [Need("1", known=False)]


def test_writes_on_an_unrecorded_checkpoint_forget_nothing() -> None:
    thread = line(2)
    thread.put("3", "2", fresh=False)
    thread.write("3", "w3")
    thread.chain.settle()
    assert thread.answer("2") == (None, ["w1"])


def test_writes_on_an_unrecorded_checkpoint_that_was_read_meanwhile_are_not_missed() -> None:
    thread = line(2)
    thread.put("3", "2", fresh=False)
    thread.saw("3", "2")
    thread.write("3", "w3")
    thread.put("4", "3")
    assert thread.answer("4") == [Need("2", known=True)]
    assert thread.answer("4", _2=Fetched("1", {}, [])) == (None, ["w1", "w3"])


def test_a_save_that_cannot_have_the_lock_goes_on_and_everything_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deerflow_saver.history.facts._PATIENCE_SECONDS", 0.01)
    thread = line(2)
    with thread.chain.lock, pytest.raises(ChainBusy), thread.chain.lock:
        pytest.fail("the lock is held")
    with thread.chain.lock:
        assert not thread.chain.knows("2")


def test_a_row_that_was_read_tells_what_is_stored_under_its_versions() -> None:
    thread = line(1, by_version=True)
    thread.chain.clear()
    thread.saw("4", "3")
    whole = thread.view.segment()
    whole.adopt([("a", "c", 1)])
    thread.chain.remember(thread.view, "4", "c", Position(whole, 1))
    thread.time += 1
    thread.put("5", "4", wrote=False)
    thread.write("5", "w5")
    thread.put("6", "5")
    assert thread.answer("6") == (None, [1, "w5"])


def test_a_gap_in_recording_leaves_older_checkpoints_unknown() -> None:
    thread = line(2)
    thread.chain.untrack(["c"])
    assert thread.chain.begin_rows("2", ["c"]) is None
    thread.time += 1
    thread.chain.track(["c"])
    thread.put("3", "2")
    assert thread.answer("3") == [Need("2", known=True), Need("1", known=True)]


def test_a_write_of_unknown_outcome_makes_its_checkpoint_be_read() -> None:
    thread = line(2)
    writing = thread.chain.begin_rows("2", ["c"])
    assert writing is not None
    thread.chain.end_rows("2", writing, None)
    thread.put("3", "2")
    assert thread.answer("3") == [Need("2", known=True)]


def test_a_child_stored_while_a_write_is_under_way_leaves_the_writes_unknown() -> None:
    thread = line(2)
    writing = thread.chain.begin_rows("2", ["c"])
    assert writing is not None
    thread.put("3", "2")
    thread.chain.end_rows("2", writing, [Row("", "t", 0, "c", packed("w"))])
    assert thread.answer("3") == [Need("3", known=False)]


def test_rows_read_for_others_teach_links_and_how_many_writes_there_are() -> None:
    thread = line(1)
    thread.chain.clear()
    thread.saw("4", "3")
    whole = thread.view.segment()
    whole.adopt([("a", "c", 1), ("b", "c", 2), ("b", "c", 3)])
    thread.chain.remember(thread.view, "4", "c", Position(whole, 3))
    thread.saw("3", "2", "b", "b")
    assert thread.answer("4") == (None, [1, 2, 3])
    assert thread.answer("3") == (None, [1])


def test_shortening_needs_the_same_task_ids() -> None:
    thread = line(1)
    thread.chain.clear()
    thread.saw("4", "3")
    whole = thread.view.segment()
    whole.adopt([("a", "c", 1), ("b", "c", 2)])
    thread.chain.remember(thread.view, "4", "c", Position(whole, 2))
    thread.saw("3", "2", "someone else")
    assert thread.answer("3") == [Need("2", known=False)]


def test_shortening_stops_at_a_stored_value() -> None:
    thread = line(1)
    thread.chain.clear()
    thread.saw("4", "3")
    seeded = thread.view.seeded(_DeltaSnapshot([0]))
    seeded.adopt([("b", "c", 2)])
    thread.chain.remember(thread.view, "4", "c", Position(seeded, 1))
    thread.saw("3", "2", "b", stored=True)
    assert thread.answer("3") == [Need("2", known=False)]


def test_a_row_read_with_another_parent_forgets_everything() -> None:
    thread = line()
    thread.saw("3", "1")
    assert thread.answer("4") == [Need("4", known=False)]


def test_a_row_read_while_it_is_being_put_teaches_nothing() -> None:
    thread = line(2)
    assert thread.chain.begin_put("3")
    thread.saw("3", "2")
    assert not thread.chain.knows("3")


def test_another_processes_child_leaves_the_parents_writes_unknown() -> None:
    thread = line(2)
    thread.saw("3", "2")
    assert thread.answer("3") == [Need("2", known=True)]
    thread.saw("2", "1")
    assert thread.answer("3") == (None, ["w1"])


def test_foreign_rows_on_the_head_are_noticed_when_it_is_read() -> None:
    thread = line(2)
    thread.write("2", "ours")
    thread.saw("2", "1", "t", "a foreign task")
    thread.put("3", "2")
    assert thread.answer("3") == [Need("2", known=True)]


def test_a_loop_of_parents_ends_in_a_need() -> None:
    thread = line(1)
    thread.chain.clear()
    rows = {"1": Fetched("2", {}, []), "2": Fetched("1", {}, [])}
    found = thread.chain.compose(thread.view, "1", "c", rows)
    assert isinstance(found, list)


def test_a_fetched_row_may_hold_the_seed() -> None:
    thread = line(1)
    thread.chain.clear()
    thread.saw("4", "3")
    row = Fetched("2", {"c": _DeltaSnapshot(["s"])}, [("t", "c", "w3")])
    assert thread.answer("4", _3=row) == (_DeltaSnapshot(["s"]), ["w3"])


def test_a_stored_none_is_left_to_the_saver() -> None:
    thread = line(1)
    thread.chain.clear()
    thread.saw("4", "3")
    row = Fetched("2", {"c": None}, [])
    assert thread.answer("4", _3=row) == [Need("3", known=True)]


def test_a_plain_stored_value_must_be_read() -> None:
    thread = line(2)
    assert thread.chain.begin_put("3")
    thread.chain.born(
        "3", "2", {"c": HELD}, versions={"c": 9}, new_versions={"c": 9}, step=3, depth=0, minted=1
    )
    thread.chain.end_put("3", clean=True)
    thread.put("4", "3")
    assert thread.answer("4") == [Need("3", known=True)]


def test_distrust_ends_and_closing_does_not() -> None:
    thread = line()
    thread.chain.distrust(0)
    assert thread.chain.trusted
    thread.chain.distrust(60)
    assert not thread.chain.trusted
    thread.chain.close()
    assert not thread.chain.trusted


def test_trimming_drops_the_oldest_segments_first() -> None:
    thread = Thread()
    thread.put("1", None)
    for i in range(2, 40):
        thread.write(str(i - 1).zfill(2), "x" * 500)
        thread.put(str(i).zfill(2), str(i - 1).zfill(2), snapshot=["s"] if i % 10 == 0 else None)
        thread.answer(str(i).zfill(2))
    size = thread.chain.size
    thread.chain.trim(size - 1000)
    assert thread.chain.size <= size - 1000
    assert isinstance(thread.answer("39"), tuple)
    thread.chain.trim(1)
    assert thread.chain.size == Chain({}, ordered=True, seeds_by_version=True).size


def test_the_gap_to_the_newest_known_checkpoint_is_counted_in_steps() -> None:
    thread = line(3)
    thread.saw("9", "8")
    assert thread.chain.gap("9") == 6
    assert thread.chain.gap("1") is None
    assert thread.chain.gap("unknown") is None


def test_channels_written_in_full_are_not_recorded_unless_they_are_read() -> None:
    chain = Chain({"a": 0, "b": 0}, ordered=True, seeds_by_version=True)
    chain.ask(["a"])
    chain.untrack(["a", "b"])
    assert set(chain.channels) == {"a"}


def test_garbage_is_collected_only_while_that_helps() -> None:
    chain = line().chain
    seen = []
    for held in (False, True, False, True, True, True, False, True):
        chain.noticed(held=held)
        seen.append(chain.collects)
    assert seen == [False, True, True, False, False, False, False, True]


def test_a_loop_that_reads_only_histories_walks_twice_and_never_again() -> None:
    """The first checkpoint was put elsewhere, and its row is never read here."""
    thread, walked = Thread(), []
    for cid in range(1, 6):
        thread.chain.settle()
        if isinstance(thread.answer(str(cid)), list):
            walked.append(cid)
            segment = thread.view.segment()
            segment.adopt([("t", "c", f"w{i}") for i in range(1, cid)])
            thread.chain.remember(thread.view, str(cid), "c", Position(segment, cid - 1))
        thread.write(str(cid), f"w{cid}")
        thread.put(str(cid + 1), str(cid))
    assert walked == [1, 2]
    assert thread.answer("6") == (None, ["w1", "w2", "w3", "w4", "w5"])


def test_other_writes_in_the_database_take_what_is_known_of_a_checkpoint() -> None:
    for others, final in (({}, True), ({("another", "c"): 1}, False)):
        thread = line(2)
        thread.write("2", "x", task="mine")
        mine = {("mine", "c"): 1, ("mine", "no delta"): 1}
        thread.put("3", "2", witnessed={**mine, **others})
        assert isinstance(thread.answer("3"), tuple) is final
