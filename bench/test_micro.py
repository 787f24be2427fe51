"""The parts of a read and of a write, each alone: `pytest bench --benchmark-only`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from pytest_benchmark.fixture import BenchmarkFixture

from deerflow_saver.bench.conversation import CHANNEL
from deerflow_saver.bench.face import Face
from deerflow_saver.bench.sides import make
from deerflow_saver.bench.stored import StoredLine

Saver = BaseCheckpointSaver[Any]
DEPTH = 100
ROUNDS = 50
every_side = pytest.mark.parametrize("side", ["raw", "memory", "alternative"])


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Saver]:
    """A saver on a file."""
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as saver:
        yield saver


@pytest.fixture
def head(raw: Saver) -> RunnableConfig:
    """The newest checkpoint of a thread that the caches have not seen."""
    config: RunnableConfig = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    line = StoredLine(Face(), raw, config, 1_000_000, 128)
    line.grow(DEPTH)
    return line.heads[-1]


def _read(saver: Saver, config: RunnableConfig) -> Any:
    return saver.get_delta_channel_history(config=config, channels=[CHANNEL])


def _drop(saver: Saver, config: RunnableConfig) -> None:
    """Read, and let go of the answer: the runner would hold it through the next round."""
    _read(saver, config)


def _put(saver: Saver, config: RunnableConfig, number: int) -> RunnableConfig:
    """A checkpoint after the one of `config`."""
    checkpoint = empty_checkpoint()
    checkpoint["id"] = str(uuid6())
    version = f"{number:032}"
    checkpoint["channel_versions"] = {CHANNEL: version}
    metadata: Any = {
        "source": "loop",
        "step": number,
        "counters_since_delta_snapshot": {CHANNEL: (number, number)},
    }
    return saver.put(config, checkpoint, metadata, {CHANNEL: version})


def _step(saver: Saver, config: RunnableConfig, number: int) -> RunnableConfig:
    """A write on the head, and the checkpoint that applies it."""
    saver.put_writes(config, [(CHANNEL, [HumanMessage("hello")])], str(uuid4()))
    return _put(saver, config, number)


@every_side
@pytest.mark.benchmark(group="warm hit")
def test_warm_hit(benchmark: BenchmarkFixture, raw: Saver, head: Any, side: str) -> None:
    """The history of a head that was read before."""
    saver = make(side, raw)
    _read(saver, head)
    benchmark.pedantic(lambda: _drop(saver, head), rounds=10 * ROUNDS, warmup_rounds=5)
    assert _read(saver, head) == _read(raw, head)


@every_side
@pytest.mark.benchmark(group="compose: the head moved by three checkpoints")
def test_compose(benchmark: BenchmarkFixture, raw: Saver, head: Any, side: str) -> None:
    """Three checkpoints were stored through the saver since the last read."""
    _moved(benchmark, raw, head, make(side, raw), lambda saver: saver)


@every_side
@pytest.mark.benchmark(group="catch up: three checkpoints by another process")
def test_catch_up(benchmark: BenchmarkFixture, raw: Saver, head: Any, side: str) -> None:
    """Three checkpoints were stored behind the cache since the last read."""
    _moved(benchmark, raw, head, make(side, raw), lambda _: raw)


def _moved(
    benchmark: BenchmarkFixture,
    raw: Saver,
    head: RunnableConfig,
    saver: Saver,
    writer: Callable[[Saver], Saver],
) -> None:
    heads = [head]
    _read(saver, head)
    saver.get_tuple(head)  # as a run does before it writes on a head

    def move() -> tuple[tuple[RunnableConfig], dict[str, Any]]:
        for _ in range(3):
            heads.append(_step(writer(saver), heads[-1], DEPTH + len(heads)))
        saver.get_tuple(heads[-1])
        return (heads[-1],), {}

    benchmark.pedantic(lambda config: _drop(saver, config), setup=move, rounds=ROUNDS)
    assert _read(saver, heads[-1]) == _read(raw, heads[-1])


@every_side
@pytest.mark.benchmark(group="walk: a new cache")
def test_walk(benchmark: BenchmarkFixture, raw: Saver, head: Any, side: str) -> None:
    """What a restarted process pays."""

    def restart() -> tuple[tuple[Saver], dict[str, Any]]:
        saver = make(side, raw)
        saver.get_tuple(head)
        return (saver,), {}

    answer = benchmark.pedantic(lambda saver: _read(saver, head), setup=restart, rounds=ROUNDS)
    assert answer == _read(raw, head)


@every_side
@pytest.mark.benchmark(group="proxy: get_tuple")
def test_get_tuple(benchmark: BenchmarkFixture, raw: Saver, head: Any, side: str) -> None:
    """What a pass-through call pays, learning included."""
    saver = make(side, raw)
    answer = benchmark.pedantic(lambda: saver.get_tuple(head), rounds=10 * ROUNDS, warmup_rounds=5)
    assert answer == raw.get_tuple(head)


@every_side
@pytest.mark.benchmark(group="proxy: an attribute")
def test_attribute(benchmark: BenchmarkFixture, raw: Saver, side: str) -> None:
    """What the proxy alone pays: an attribute that it passes on."""
    saver = make(side, raw)
    serde = benchmark.pedantic(lambda: saver.serde, rounds=10 * ROUNDS, warmup_rounds=5)
    assert type(serde) is type(raw.serde)


@every_side
@pytest.mark.benchmark(group="put_writes")
def test_put_writes(benchmark: BenchmarkFixture, raw: Saver, head: Any, side: str) -> None:
    """One message on the head, recording included."""
    saver = make(side, raw)
    _read(saver, head)
    saver.get_tuple(head)
    newest = _step(saver, head, DEPTH)
    writes = [(CHANNEL, [HumanMessage("hello")])]
    benchmark.pedantic(
        lambda task: saver.put_writes(newest, writes, task),
        setup=lambda: ((str(uuid4()),), {}),
        rounds=10 * ROUNDS,
    )
    stored = raw.get_tuple(newest)
    assert stored is not None
    assert len(stored.pending_writes or ()) == 10 * ROUNDS


@pytest.mark.parametrize("guard", ["none", "off", "observe", "refuse"])
@pytest.mark.benchmark(group="guard check: put")
def test_guard_check(benchmark: BenchmarkFixture, raw: Saver, head: Any, guard: str) -> None:
    """A checkpoint on the head: through no wrapper, and under each policy."""
    saver = raw if guard == "none" else make("memory", raw, guard=guard)
    heads = [head]

    def put() -> None:
        heads.append(_put(saver, heads[-1], DEPTH + len(heads)))

    benchmark.pedantic(put, rounds=4 * ROUNDS, warmup_rounds=5)
    assert len(list(raw.list({"configurable": {"thread_id": "thread"}}))) == DEPTH + len(heads)
