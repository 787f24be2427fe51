"""What the process of one case of `bench channels` does: write, read, close, read anew."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from deerflow_saver import CachedHistorySaver
from deerflow_saver.bench.channels.cases import ChannelCase
from deerflow_saver.bench.channels.sizes import file_size, file_sizes, storage_stats
from deerflow_saver.bench.digests import Mismatch, canonical_messages_digest
from deerflow_saver.bench.errors import safe_error
from deerflow_saver.bench.figures import percentile, window_median
from deerflow_saver.bench.memory import peak_rss_bytes
from deerflow_saver.channel_mode import with_checkpoint_mode
from deerflow_saver.state import (
    CheckpointStateAccessor,
    adapt_state_schema_for_mode,
    merge_message_writes,
)

__all__ = ["benchmark_message", "work"]

_PREFIX = "deerflow-saver-bench-"


def work(asked: Mapping[str, Any]) -> Generator[Any, Any, None]:
    """Ready, then the row."""
    yield {"ready": True}
    case = ChannelCase(**asked)
    with TemporaryDirectory(prefix=_PREFIX) as folder:
        path = None if case.backend == "memory" else Path(folder) / "checkpoints.sqlite"
        yield _Measured(case, path).row()


def benchmark_message(number: int, payload_bytes: int) -> AnyMessage:
    """Message `number`; human and model take turns."""
    kind = AIMessage if number % 2 else HumanMessage
    return kind("x" * payload_bytes, id=f"bench-message-{number:08}")


class _Messages(TypedDict):
    """The state in full mode."""

    messages: Annotated[list[AnyMessage], add_messages]


@dataclass
class _Measured:
    """One case at work."""

    case: ChannelCase
    path: Path | None
    memory: InMemorySaver = field(default_factory=InMemorySaver)
    found: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        case = self.case
        said = [benchmark_message(n, case.payload_bytes) for n in range(case.update_count)]
        expected = canonical_messages_digest(said)
        self.found |= {"expected_message_count": len(said), "content_sha256": expected}
        with self._opened() as (inner, saver):
            self._write(saver, said)
            self._read("warm_read_ms", saver, expected)
            self._stats(inner)
            self._cache("write", saver)
        self.found["durable_db_bytes"] = self.path and file_size(self.path)
        gc.collect()
        began = time.perf_counter()
        with self._opened() as (_, saver):
            self.found["saver_reopen_ms"] = 0.0 if self.path is None else _ms(began)
            self._read("cold_read_ms", saver, expected)
            self._cache("cold", saver)
        self._replay(said, expected)
        return self.found | {"peak_rss_bytes": peak_rss_bytes()}

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        if self.path is None:
            yield self.memory, self._wrapped(self.memory)
            return
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(str(self.path)) as inner:
            inner.setup()
            yield inner, self._wrapped(inner)

    def _wrapped(self, inner: Any) -> Any:
        return inner if self.case.history_cache == "off" else CachedHistorySaver(inner)

    def _graph(self, saver: Any) -> Any:
        case = self.case
        mode: Any = case.mode
        schema = adapt_state_schema_for_mode(_Messages, mode, case.snapshot_frequency)
        builder: Any = StateGraph(schema)
        builder.add_node("nothing", lambda _: {})
        builder.add_edge(START, "nothing")
        return builder.compile(checkpointer=saver)

    def _config(self) -> Any:
        thread_id = f"checkpoint-bench-{self.case.seed}-{self.case.repetition}"
        config: Any = {"configurable": {"thread_id": thread_id}}
        return with_checkpoint_mode(config, self.case.mode)  # type: ignore[arg-type]

    def _write(self, saver: Any, said: list[AnyMessage]) -> None:
        graph, config, times = self._graph(saver), self._config(), []
        for message in said:
            began = time.perf_counter()
            graph.invoke({"messages": [message]}, config)
            times.append(_ms(began))
        self.found["write_total_ms"] = sum(times)
        for share in (50, 95, 99):
            self.found[f"write_p{share}_ms"] = percentile(times, share / 100)
        for window in ("first", "middle", "last"):
            self.found[f"write_{window}_window_ms"] = window_median(times, window)

    def _read(self, name: str, saver: Any, expected: str) -> None:
        mode: Any = self.case.mode
        accessor = CheckpointStateAccessor.bind(self._graph(saver), saver, mode=mode)
        began = time.perf_counter()
        messages = accessor.get(self._config()).values["messages"]
        self.found[name] = _ms(began)
        self.found["actual_message_count"] = len(messages)
        _same(canonical_messages_digest(messages), expected, name.removesuffix("_ms"))

    def _stats(self, inner: Any) -> None:
        self.found |= file_sizes(self.path)
        try:
            self.found |= storage_stats(inner, self.path) | {"storage_stats_error": None}
        except Exception as error:  # noqa: BLE001 - sizes are a by-product: the times still count
            nothing = dict.fromkeys(
                ("logical_checkpoint_bytes", "checkpoint_rows", "logical_write_bytes", "write_rows")
            )
            self.found |= nothing | {"storage_stats_error": safe_error(error)}

    def _cache(self, when: str, saver: Any) -> None:
        self.found["history_cache_enabled"] = self.case.history_cache != "off"
        if self.case.history_cache != "off":
            info = saver.cache_info().as_dict()
            self.found |= {f"history_cache_{when}_{name}": n for name, n in info.items()}

    def _replay(self, said: list[AnyMessage], expected: str) -> None:
        """The reducer alone, over all writes at once."""
        writes = [[message] for message in said]
        merge: Callable[..., Any] = merge_message_writes
        began = time.perf_counter()
        merged = merge([], writes)
        self.found["reducer_replay_ms"] = _ms(began)
        _same(canonical_messages_digest(merged), expected, "reducer replay")


def _same(found: str, expected: str, what: str) -> None:
    if found != expected:
        raise Mismatch(f"the {what} gave other messages than were written")


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1e3, 4)
