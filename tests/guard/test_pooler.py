"""Through a pooler that gives every transaction another session, the guard keeps its line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from deerflow_saver.fixes._scenes import compiled, said, thread
from support.pooler import transaction_pooler
from support.savers import Storage
from support.upstream import gives_up_after_a_failed_save

_FORKS = "SELECT 1 FROM checkpoints GROUP BY parent_checkpoint_id HAVING count(*) > 1"


@contextmanager
def _worker(pooled: str) -> Iterator[CachedHistorySaver]:
    """A saver that prepares nothing: what one session prepared, another does not have."""
    options: Any = {"autocommit": True, "prepare_threshold": None, "row_factory": dict_row}
    with psycopg.connect(pooled, **options) as connection:
        yield CachedHistorySaver(PostgresSaver(connection))


def test_of_two_workers_that_race_none_makes_a_fork(storage: Storage) -> None:
    with PostgresSaver.from_conn_string(storage.postgres_uri) as direct:
        direct.setup()
    ended: list[str] = []

    def race(saver: CachedHistorySaver, name: str) -> None:
        graph = compiled({"node": lambda _state: said(f"{name} out")}, saver=saver)
        for number in range(15):
            try:
                graph.invoke(said(f"{name} {number}"), thread())
            except NonHeadWriteError:
                continue
            ended.append(f"{name} {number}")

    with transaction_pooler(storage.postgres_uri, 4) as pooled:
        with _worker(pooled) as one, _worker(pooled) as other:
            assert one.guard is not None
            assert one.guard.fence == "transaction"
            runs = [threading.Thread(target=race, args=pair) for pair in ((one, "a"), (other, "b"))]
            for run in runs:
                run.start()
            for run in runs:
                run.join()
        with _worker(pooled) as cold:
            values = compiled({"node": lambda _state: {}}, saver=cold).get_state(thread()).values
    with psycopg.connect(storage.postgres_uri) as admin:
        assert admin.execute(_FORKS).fetchall() == []
    if gives_up_after_a_failed_save():
        assert values["log"] == values["ref"]
    assert set(ended) <= set(values["log"])
    assert ended
