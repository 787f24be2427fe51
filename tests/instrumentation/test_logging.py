"""`EventLogger`: one record for each event, at its level."""

from __future__ import annotations

import logging

import pytest

from deerflow_saver.instrumentation import EventLogger
from instrumentation.adapters import HIT, PAST, REFUSAL, WALK, served


def test_a_read_is_one_line_that_carries_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "deerflow_saver.events"):
        EventLogger()(WALK)
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert record.getMessage() == "read messages: walk, 120 writes after root, 1 calls, 20.000 ms"
    assert record.event is WALK  # type: ignore[attr-defined]


def test_reads_below_the_level_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "deerflow_saver.events"):
        EventLogger()(HIT)
        EventLogger(level=logging.INFO)(WALK)
    assert [record.event for record in caplog.records] == [WALK]  # type: ignore[attr-defined]


def test_a_walk_past_the_bound_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "deerflow_saver.events"):
        EventLogger()(PAST)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith("past the bound")


def test_a_guarded_write_says_where_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "deerflow_saver.events"):
        EventLogger(guard_level=logging.ERROR)(REFUSAL)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    for word in ("refused put (fork)", "'secret-thread'", "checkpoint 1", "head 2"):
        assert word in record.getMessage()


def test_it_logs_what_a_wrapper_does(caplog: pytest.LogCaptureFixture) -> None:
    own = logging.getLogger("shop.saver")
    with caplog.at_level(logging.DEBUG, "shop.saver"):
        served(EventLogger(own))
    words = [record.getMessage() for record in caplog.records if record.name == "shop.saver"]
    assert any(": hit, " in line for line in words)
    assert any(line.startswith("refused ") for line in words)
