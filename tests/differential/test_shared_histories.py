"""Workers with a Redis between them, called in whatever order, read as the raw saver does."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any, ClassVar
from uuid import uuid4

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from deerflow_saver import (
    CachedHistorySaver,
    DeerflowSaverError,
    allow_non_head_writes,
)
from deerflow_saver.cache.redis import RedisHistoryCache
from differential.hosts import Host
from differential.machines import BUDGETS, ISOLATIONS, run
from differential.profiles import effort
from differential.saver_machine import DELTA, Batch, Line, SaverHistories, batches, numbers, places
from differential.values import Spec, specs
from support.savers import CASES, SaverCase

CHOSEN = [case for case in CASES if case.name in {"memory", "sqlite", "async-sqlite", "postgres"}]


@pytest.fixture(params=CHOSEN, ids=str)
def case(request: pytest.FixtureRequest) -> SaverCase:
    """One saver of each kind."""
    chosen: SaverCase = request.param
    return chosen


class SharedHistories(SaverHistories):
    """Guarded workers, each with a memory of its own; what the guard refuses is not stored."""

    url: ClassVar[str]
    channels = DELTA  # of others nothing is shared, and they are read one by one

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        self._name = uuid4().hex
        self._overriding = False

    @initialize(
        budget=st.sampled_from(BUDGETS),
        isolation=st.sampled_from(ISOLATIONS),
        eager=st.booleans(),
    )
    def begin(self, budget: int, isolation: str, *, eager: bool) -> None:
        """Counted, or no guard would know what is delta."""
        super().begin("uuid6", budget, isolation, eager=eager, counted=True)
        for place in (0, 1, 2):
            batch: Batch = [("log", ("human", 0)), ("facts", ("human", place))]
            self.turn(place=place, steps=3, batch=batch, spec=("human", 1), number=place)

    def start(self, budget: int, isolation: str, *, eager: bool) -> None:
        self.budget, self.isolation, self.eager = budget, isolation, eager
        self.prefix = self._name
        self.wrappers = [self._worker(self.host.inner), self._worker(self.host.other)]

    def _worker(self, inner: Any) -> CachedHistorySaver:
        cache = RedisHistoryCache.from_url(self.url, timeout=10.0, max_bytes=self.budget)
        self._open.callback(lambda: self.host.loop.run(cache.aclose()))
        self.cache = cache
        return self._wrap(inner)

    def _wrap(self, inner: Any) -> CachedHistorySaver:
        return CachedHistorySaver(
            inner,
            self.cache,
            key_prefix=self.prefix,
            isolation=self.isolation,  # type: ignore[arg-type]
        )

    def _put(self, line: Line, *args: Any, **kwargs: Any) -> None:
        with suppress(DeerflowSaverError), self._allowed():
            super()._put(line, *args, **kwargs)

    def _write(self, *args: Any, **kwargs: Any) -> None:
        with suppress(DeerflowSaverError), self._allowed():
            super()._write(*args, **kwargs)

    def _allowed(self) -> Any:
        if not self._overriding:
            return ExitStack()
        self._overriding = False
        return allow_non_head_writes(reason="a test")

    @rule()
    def let_an_administrator_write_once(self) -> None:
        self._overriding = True

    @rule(number=numbers)
    def copy_by_hand(self, number: int) -> None:
        """As far as the guard lets it."""
        with suppress(DeerflowSaverError):
            super().copy_by_hand(number)

    @rule(place=places, steps=st.integers(2, 5), batch=batches, spec=specs, number=numbers)
    def turn(self, place: int, steps: int, batch: Batch, spec: Spec, number: int) -> None:
        """A run as LangGraph makes it: read the head, then superstep after superstep."""
        line = self.lines[place]
        self.same_row(self.pick(number), self.face(number), line.config(None), spoiled=False)
        for _ in range(steps):
            head = max(line.ids, default=None)
            if head is not None:
                self._write(line, head, batch, uuid4().hex, "", number)
            self._put(line, self._mint(), head, {}, spec, number)

    @rule(number=numbers)
    def lose_part_of_redis(self, number: int) -> None:
        """An eviction, or a loss of some records."""
        with redis.Redis.from_url(self.url) as client:
            for key in sorted(client.scan_iter(f"*{self._name}*")):
                if number % 3 == 0 or client.type(key) != b"hash":
                    if number % 4 == 0:
                        client.delete(key)
                    continue
                fields = sorted(client.hkeys(key))
                client.hdel(key, fields[number % len(fields)])

    @rule()
    def a_third_worker(self) -> None:
        self.wrappers = [*self.wrappers[-2:], self._worker(self.host.inner)]

    def teardown(self) -> None:
        try:
            if self.wrappers:
                self.a_third_worker()
            super().teardown()
        finally:
            shared = sum(wrapper.cache_info().shared for wrapper in self.wrappers)
            SharedHistories.taken += shared
            self._open.close()

    taken: ClassVar[int] = 0


@pytest.mark.timeout(600, method="thread")
def test_any_history_of_two_workers_reads_the_same_shared_and_raw(
    host: Host, redis_database: str
) -> None:
    before = SharedHistories.taken
    chosen = effort().settings(server=host.on_a_server, share=0.15)
    run(SharedHistories, chosen, host=host, url=redis_database)
    if not host.on_a_server:  # on a server two short histories may not do
        assert SharedHistories.taken > before, "nothing was ever shared: the test tests nothing"
