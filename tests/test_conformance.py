"""LangGraph's conformance suite for savers gives a wrapped saver the score of the raw one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_checkpoint_objectstorage import ObjectStorageSaver
from langgraph_oep import OEPCheckpointSaver

from deerflow_saver import CachedHistorySaver
from support.savers import SaverCase, Storage, every_async_case

Saver = BaseCheckpointSaver[Any]


class Rich(InMemorySaver):
    """A saver with every optional method, some of them wrong: mistakes must score alike, too."""

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all rows."""
        for (thread, ns, cid), rows in list(self.writes.items()):
            if thread == source_thread_id:
                self.writes[target_thread_id, ns, cid] = dict(rows)
        for (thread, *rest), blob in list(self.blobs.items()):
            if thread == source_thread_id:
                self.blobs[target_thread_id, *rest] = blob
        for ns, rows in list(self.storage[source_thread_id].items()):
            self.storage[target_thread_id][ns] = dict(rows)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the rows of some runs."""
        for row in list(self.list(None)):
            if row.metadata.get("run_id") in run_ids:
                place = row.config["configurable"]
                rows = self.storage[place["thread_id"]][place["checkpoint_ns"]]
                rows.pop(place["checkpoint_id"], None)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete everything, whatever the strategy."""
        for thread_id in thread_ids:
            self.delete_thread(thread_id)


class Wrong(InMemorySaver):
    """A saver that loses parents and lists the wrong way round."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Forget the parent."""
        row = super().get_tuple(config)
        return None if row is None else row._replace(parent_config=None)

    async def alist(
        self, config: RunnableConfig | None, **kwargs: Any
    ) -> AsyncIterator[CheckpointTuple]:
        """Oldest first."""
        for row in reversed(list(self.list(config, **kwargs))):
            yield row


async def score(opened: Any, *, wrapped: bool) -> dict[str, Any]:
    """What the suite says; `opened` gives a context manager of a raw saver each time."""

    async def factory() -> AsyncGenerator[Saver, None]:
        async with opened() as raw:
            yield CachedHistorySaver(raw) if wrapped else raw  # type: ignore[misc]

    report = await validate(RegisteredCheckpointer("saver", factory))
    found = report.to_dict()
    for result in found["results"].values():
        # The messages behind the test's name hold random ids
        result["failures"] = [failure.partition(":")[0] for failure in result["failures"]]
    return found


async def compare(opened: Any) -> dict[str, Any]:
    """Both scores, equal."""
    raw = await score(opened, wrapped=False)
    assert await score(opened, wrapped=True) == raw
    assert raw["results"].keys() == {capability.value for capability in Capability}
    assert sum(result["tests_passed"] for result in raw["results"].values()) > 20
    return raw


@every_async_case
async def test_savers_score_alike(case: SaverCase, storage: Storage) -> None:
    raw = await compare(lambda: case.aopen(storage))
    assert raw["conformance_level"] == "FULL"


@pytest.mark.parametrize("made", [Rich, Wrong])
async def test_failures_score_alike(made: type[InMemorySaver]) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Saver]:
        yield made()

    raw = await compare(opened)
    assert raw["conformance_level"] != "FULL"


async def test_an_object_storage_saver_scores_alike(tmp_path: Path) -> None:
    numbers: Iterator[int] = iter(range(100))

    @asynccontextmanager
    async def opened() -> AsyncIterator[Saver]:
        yield ObjectStorageSaver.from_conn_string((tmp_path / str(next(numbers))).as_uri())

    await compare(opened)


async def test_a_wrapping_saver_scores_alike() -> None:
    class Sink:
        def write(self, packet: dict[str, Any]) -> None:
            """Nobody reads reports here."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Saver]:
        yield OEPCheckpointSaver(InMemorySaver(), Sink())

    await compare(opened)
