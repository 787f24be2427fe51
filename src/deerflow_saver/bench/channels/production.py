"""What the process of one production case does: a conversation, then reads through the router.

The conversation runs on an `AsyncSqliteSaver` inside the wrapper, as an application holds it.
It is then read over ASGI through the router of `contrib.fastapi`, whose graphs come from a cache
of compiled graphs: a cold read builds one, a warm read none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.bench.channels.intervals import READS, WRITES, Intervals, timed
from deerflow_saver.bench.channels.production_cases import WARMUP_TURNS, ProductionCase
from deerflow_saver.bench.channels.sizes import file_sizes
from deerflow_saver.bench.digests import Mismatch, canonical_messages_digest
from deerflow_saver.bench.figures import percentile
from deerflow_saver.bench.memory import peak_rss_bytes
from deerflow_saver.channel_mode import (
    DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY,
    freeze,
    with_checkpoint_mode,
)
from deerflow_saver.cli.errors import needs
from deerflow_saver.state import (
    CheckpointStateAccessor,
    CompiledGraphCache,
    aopen_state_accessor,
    get_thread_state_schema,
)

__all__ = ["wire_digest", "work"]

_PREFIX = "deerflow-saver-bench-"


def work(asked: Mapping[str, Any]) -> Generator[Any, Any, None]:
    """Ready, then the row."""
    yield {"ready": True}
    limits = tuple(asked["history_limits"])
    case = ProductionCase(**{**asked, "history_limits": limits})
    cadence = case.snapshot_frequency or DEFAULT_CHECKPOINT_SNAPSHOT_FREQUENCY
    freeze(case.mode, cadence)  # type: ignore[arg-type]
    with TemporaryDirectory(prefix=_PREFIX) as folder:
        yield asyncio.run(_measured(case, Path(folder) / "checkpoints.sqlite"))


def wire_digest(states: Any) -> str:
    """SHA-256 of the states as they came over the wire: their messages, and what is next."""
    fields = ("type", "id", "content", "tool_calls", "additional_kwargs")
    said = [
        [
            [[message.get(name) for name in fields] for message in state["values"]["messages"]],
            state.get("next"),
        ]
        for state in states
    ]
    return hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()


async def _measured(case: ProductionCase, path: Path) -> dict[str, Any]:
    needs("langgraph.checkpoint.sqlite", "bench")
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    intervals = Intervals()
    async with timed(AsyncSqliteSaver, intervals).from_conn_string(str(path)) as inner:
        await inner.setup()
        saver: Any = inner if case.history_cache == "off" else CachedHistorySaver(inner)
        run = _Conversation(case, saver, intervals)
        await run.talk()
        await run.read()
        return run.found | file_sizes(path) | {"peak_rss_bytes": peak_rss_bytes()}


@dataclass
class _Conversation:
    case: ProductionCase
    saver: Any
    intervals: Intervals
    found: dict[str, Any] = field(default_factory=dict)
    built: int = 0
    graphs: CompiledGraphCache = field(default_factory=CompiledGraphCache)

    @property
    def thread_id(self) -> str:
        return f"production-bench-{self.case.seed}-{self.case.repetition}"

    @property
    def config(self) -> Any:
        config: Any = {"configurable": {"thread_id": self.thread_id}}
        return with_checkpoint_mode(config, self.case.mode)  # type: ignore[arg-type]

    def build(self) -> Any:
        """The agent: a scripted model. Counted, because building is what the graph cache saves."""
        self.built += 1
        case = self.case
        mode: Any = case.mode

        def model(state: Any) -> dict[str, Any]:
            turn = int(state["messages"][-1].id.rpartition("-")[2])
            return {"messages": [AIMessage("x" * case.payload_bytes, id=f"bench-ai-{turn:08}")]}

        builder = StateGraph(get_thread_state_schema(mode, case.snapshot_frequency))
        builder.add_node("model", model)
        builder.add_edge(START, "model")
        return builder.compile(checkpointer=self.saver)

    async def talk(self) -> None:
        """All turns; those of the warm-up are not counted."""
        graph, turns, writes = self.build(), [], []
        for turn in range(self.case.turns):
            asked = HumanMessage("y" * self.case.payload_bytes, id=f"bench-h-{turn:08}")
            began = time.perf_counter()
            await graph.ainvoke({"messages": [asked]}, self.config)
            taken, written = _ms(began), self.intervals.taken(WRITES)
            if turn >= WARMUP_TURNS:
                turns.append(taken)
                writes.append(written)
        for share in (50, 95):
            self.found[f"run_turn_p{share}_ms"] = percentile(turns, share / 100)
        for share in (50, 95, 99):
            self.found[f"checkpoint_write_p{share}_ms"] = percentile(writes, share / 100)
        mode: Any = self.case.mode
        accessor = CheckpointStateAccessor.bind(graph, self.saver, mode=mode)
        messages = (await accessor.aget(self.config)).values["messages"]
        self.found["message_count"] = len(messages)
        self.found["seed_content_sha256"] = canonical_messages_digest(messages)

    async def read(self) -> None:
        """The state, then a page of each size, each cold and warm."""
        async with self._client() as client:
            path = f"/threads/{self.thread_id}"
            await client.get("/threads/nobody/state")  # what the first request alone pays
            state = await self._reads("state", lambda: client.get(f"{path}/state"))
            self.found["state_wire_sha256"] = wire_digest([state])
            digests = ""
            for limit in self.case.effective_limits:
                page = await self._reads(
                    f"history_limit_{limit}",
                    lambda limit=limit: client.post(f"{path}/history", json={"limit": limit}),
                )
                digests += wire_digest(page)
        self.found["history_wire_sha256"] = hashlib.sha256(digests.encode()).hexdigest()
        self.found["saver_read_attribution"] = True

    def _client(self) -> Any:
        fastapi, httpx = needs("fastapi", "fastapi"), needs("httpx", "fastapi")
        from deerflow_saver.contrib.fastapi import install_error_handlers, state_router

        async def accessor(_request: Any, _thread_id: str) -> Any:
            return await aopen_state_accessor(self.build, self.saver, cache=self.graphs)

        app = fastapi.FastAPI()
        install_error_handlers(app)
        app.include_router(state_router(accessor))
        transport = httpx.ASGITransport(app=app)
        return httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=None)

    async def _reads(self, name: str, ask: Any) -> Any:
        """One read after the caches were emptied, then warm ones; the answer."""
        self.graphs.clear()
        if self.case.history_cache != "off":
            self.saver.cache_clear()
        cold, answer = await self._asked(
            ask, builds=1, what=f"{name}: the graph cache was not cold"
        )
        self.found[f"{name}_cold_ms"] = cold
        self.found[f"{name}_cold_saver_ms"] = self.intervals.taken(READS)
        warm = []
        for _ in range(self.case.read_repetitions):
            taken, again = await self._asked(ask, builds=0, what=f"{name}: cache was not hit")
            warm.append(taken)
            if again != answer:
                raise Mismatch(f"{name}: a warm read differs from the cold one")
        self.found[f"{name}_warm_p50_ms"] = percentile(warm, 0.5)
        self.found[f"{name}_warm_p95_ms"] = percentile(warm, 0.95)
        self.found[f"{name}_warm_saver_ms"] = self.intervals.taken(READS) / len(warm)
        return answer

    async def _asked(self, ask: Any, *, builds: int, what: str) -> tuple[float, Any]:
        self.intervals.taken(READS)
        before, began = self.built, time.perf_counter()
        response = await ask()
        taken = _ms(began)
        response.raise_for_status()
        if self.built - before != builds:
            built = self.built - before
            raise Mismatch(f"{what}: {built} graph builds, expected exactly {builds}")
        return taken, response.json()


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1e3, 4)
