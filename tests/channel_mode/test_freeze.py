from __future__ import annotations

import threading
from typing import Any

import pytest

from deerflow_saver import channel_mode as cm
from deerflow_saver.errors import DeerflowSaverError, InvalidConfigError

MODE_TEXT = "checkpoint_channel_mode is restart-required and cannot change in a running process"
FREQUENCY_TEXT = (
    "checkpoint_delta.snapshot_frequency is restart-required and cannot change in a running process"
)


def test_nothing_is_frozen_at_first() -> None:
    assert cm.frozen() is None
    assert cm.frozen_checkpoint_channel_mode() is None
    assert cm.frozen_checkpoint_snapshot_frequency() is None


def test_freeze_settles_both_and_again_changes_nothing() -> None:
    assert cm.freeze("delta", 7) == ("delta", 7)
    assert cm.freeze("delta", 7) == ("delta", 7)
    assert cm.frozen() == ("delta", 7)
    assert cm.frozen_checkpoint_channel_mode() == "delta"
    assert cm.frozen_checkpoint_snapshot_frequency() == 7


def test_another_mode_is_refused_with_the_exact_text() -> None:
    cm.freeze("delta", 7)
    with pytest.raises(cm.CheckpointModeReconfigurationError) as caught:
        cm.freeze("full", 7)
    assert str(caught.value) == MODE_TEXT
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, DeerflowSaverError)
    assert cm.frozen() == ("delta", 7)


def test_another_cadence_is_refused_with_the_exact_text() -> None:
    cm.freeze("delta", 7)
    with pytest.raises(cm.CheckpointModeReconfigurationError) as caught:
        cm.freeze("delta", 8)
    assert str(caught.value) == FREQUENCY_TEXT
    assert cm.frozen() == ("delta", 7)


def test_a_refused_freeze_leaves_nothing_half_frozen() -> None:
    cm.freeze_checkpoint_snapshot_frequency(5)
    with pytest.raises(cm.CheckpointModeReconfigurationError):
        cm.freeze("delta", 6)
    assert cm.frozen() == (None, 5)
    assert cm.frozen_checkpoint_channel_mode() is None


def test_the_two_functions_of_their_own_agree_with_freeze() -> None:
    assert cm.freeze_checkpoint_channel_mode("full") == "full"
    assert cm.freeze_checkpoint_snapshot_frequency(3) == 3
    assert cm.freeze("full", 3) == ("full", 3)
    with pytest.raises(cm.CheckpointModeReconfigurationError, match="restart"):
        cm.freeze_checkpoint_channel_mode("delta")
    with pytest.raises(cm.CheckpointModeReconfigurationError, match="restart"):
        cm.freeze_checkpoint_snapshot_frequency(4)


@pytest.mark.parametrize("frequency", [0, -1])
def test_a_cadence_below_one_is_refused_before_anything_is_stored(frequency: int) -> None:
    for call in (cm.freeze_checkpoint_snapshot_frequency, lambda n: cm.freeze("delta", n)):
        with pytest.raises(ValueError, match=r"^snapshot frequency must be positive$"):
            call(frequency)
    assert cm.frozen() is None


@pytest.mark.parametrize("frequency", [True, "10", 1.0, None])
def test_a_cadence_that_is_no_int_is_refused(frequency: Any) -> None:
    with pytest.raises(InvalidConfigError, match="positive int"):
        cm.freeze("delta", frequency)
    assert cm.frozen() is None


@pytest.mark.parametrize("mode", ["Delta", "", None, True, b"full", 1])
def test_a_mode_that_is_none_is_refused(mode: Any) -> None:
    for call in (cm.freeze, cm.freeze_checkpoint_channel_mode):
        with pytest.raises(InvalidConfigError, match="must be 'full' or 'delta'"):
            call(mode)
    assert cm.frozen() is None


def test_racing_threads_agree_on_one_pair() -> None:
    choices: list[tuple[Any, int]] = [("full", 1), ("delta", 2), ("full", 3), ("delta", 4)] * 4
    start = threading.Barrier(len(choices))
    won, lost = [], []

    def race(mode: Any, frequency: int) -> None:
        start.wait()
        try:
            won.append(cm.freeze(mode, frequency))
        except cm.CheckpointModeReconfigurationError:
            lost.append((mode, frequency))

    threads = [threading.Thread(target=race, args=choice) for choice in choices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(won) == {cm.frozen()}
    assert cm.frozen() in choices
    assert len(won) == 4
    assert len(lost) == 12


def test_the_cadence_resolves_from_explicit_to_frozen_to_ten() -> None:
    assert cm.resolve_checkpoint_snapshot_frequency() == 10
    cm.freeze("delta", 25)
    assert cm.resolve_checkpoint_snapshot_frequency() == 25
    assert cm.resolve_checkpoint_snapshot_frequency(3) == 3
    with pytest.raises(ValueError, match="positive"):
        cm.resolve_checkpoint_snapshot_frequency(0)


def test_the_mode_resolves_from_frozen_to_full_and_contradicts_nothing() -> None:
    assert cm.resolve_checkpoint_channel_mode() == "full"
    assert cm.resolve_checkpoint_channel_mode("delta") == "delta"
    cm.freeze("delta")
    assert cm.resolve_checkpoint_channel_mode() == "delta"
    with pytest.raises(cm.CheckpointModeReconfigurationError, match="restart"):
        cm.resolve_checkpoint_channel_mode("full")


def test_thawed_puts_back_what_was_frozen_even_after_an_error() -> None:
    cm.freeze("full", 4)

    def fail() -> None:
        with cm.thawed():
            assert cm.frozen() is None
            cm.freeze("delta", 9)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert cm.frozen() == ("full", 4)
