"""The circuit breaker: an outage costs one attempt at a time."""

from __future__ import annotations

from deerflow_saver.cache.breaker import Breaker


class Clock:
    """A time that goes on when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_lets_all_through_until_one_fails() -> None:
    breaker = Breaker(5.0, Clock())
    assert breaker.allows()
    assert not breaker.succeeded()
    assert breaker.failed()
    assert breaker.open
    assert not breaker.allows()


def test_after_the_rest_one_tries_for_all() -> None:
    clock = Clock()
    breaker = Breaker(5.0, clock)
    breaker.failed()
    clock.now += 5.0
    assert breaker.allows()
    assert not breaker.allows()
    assert not breaker.failed()  # the same outage
    assert not breaker.allows()
    clock.now += 5.0
    assert breaker.allows()
    assert breaker.succeeded()
    assert not breaker.succeeded()
    assert breaker.allows()
    assert breaker.outages == 1


def test_each_outage_counts_once_however_many_fail() -> None:
    breaker = Breaker(5.0, Clock())
    assert [breaker.failed() for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert breaker.failed()
    assert breaker.outages == 2
