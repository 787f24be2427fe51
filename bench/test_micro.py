"""The parts of a read and of a write, each alone: `pytest bench --benchmark-only`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bench.ab import ARMS
from bench.scenarios import CHANNEL, Thread, grow
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from pytest_benchmark.fixture import BenchmarkFixture

Saver = BaseCheckpointSaver[Any]
DEPTH = 100
ROUNDS = 50
every_arm = pytest.mark.parametrize("arm", list(ARMS))


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Saver]:
    """A saver on a file."""
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as saver:
        yield saver


@pytest.fixture
def thread(raw: Saver) -> Thread:
    """A thread that the caches have not seen."""
    return grow(raw, "thread", "root", DEPTH, 0)


def _head(raw: Saver, thread: Thread) -> RunnableConfig:
    found = raw.get_tuple(thread.config)
    assert found is not None
    return found.config


def _read(saver: Saver, config: RunnableConfig) -> Any:
    return saver.get_delta_channel_history(config=config, channels=[CHANNEL])


def _drop(saver: Saver, config: RunnableConfig) -> None:
    """Read, and let go of the answer: the runner would hold it through the next round."""
    _read(saver, config)


def _step(saver: Saver, config: RunnableConfig, number: int) -> RunnableConfig:
    """A checkpoint after the one of `config`, and a write on it."""
    version = f"{number:032}"
    checkpoint = {**empty_checkpoint(), "channel_versions": {CHANNEL: version}}
    stored = saver.put(
        config,
        checkpoint,  # type: ignore[arg-type]
        {
            "source": "loop",
            "step": number,
            "counters_since_delta_snapshot": {CHANNEL: (number, number)},
        },
        {CHANNEL: version},
    )
    saver.put_writes(stored, [(CHANNEL, [HumanMessage("hello")])], str(uuid4()))
    return stored


@every_arm
@pytest.mark.benchmark(group="warm hit")
def test_warm_hit(benchmark: BenchmarkFixture, raw: Saver, thread: Thread, arm: str) -> None:
    """The history of a head that was read before."""
    saver, head = ARMS[arm](raw), _head(raw, thread)
    _read(saver, head)
    benchmark.pedantic(lambda: _drop(saver, head), rounds=ROUNDS, warmup_rounds=2)
    assert _read(saver, head) == _read(raw, head)


@every_arm
@pytest.mark.benchmark(group="compose: the head moved by three checkpoints")
def test_compose(benchmark: BenchmarkFixture, raw: Saver, thread: Thread, arm: str) -> None:
    """Three checkpoints were stored through the saver since the last read."""
    _moved(benchmark, raw, thread, ARMS[arm](raw), lambda saver: saver)


@every_arm
@pytest.mark.benchmark(group="catch up: three checkpoints by another process")
def test_catch_up(benchmark: BenchmarkFixture, raw: Saver, thread: Thread, arm: str) -> None:
    """Three checkpoints were stored behind the cache since the last read."""
    _moved(benchmark, raw, thread, ARMS[arm](raw), lambda _: raw)


def _moved(
    benchmark: BenchmarkFixture,
    raw: Saver,
    thread: Thread,
    saver: Saver,
    writer: Callable[[Saver], Saver],
) -> None:
    heads = [_head(raw, thread)]
    _read(saver, heads[-1])

    def move() -> tuple[tuple[RunnableConfig], dict[str, Any]]:
        for _ in range(3):
            heads.append(_step(writer(saver), heads[-1], DEPTH + len(heads)))
        saver.get_tuple(heads[-1])
        return (heads[-1],), {}

    benchmark.pedantic(lambda head: _drop(saver, head), setup=move, rounds=ROUNDS)
    assert _read(saver, heads[-1]) == _read(raw, heads[-1])


@every_arm
@pytest.mark.benchmark(group="walk: a new cache")
def test_walk(benchmark: BenchmarkFixture, raw: Saver, thread: Thread, arm: str) -> None:
    """What a restarted process pays."""
    head = _head(raw, thread)

    def restart() -> tuple[tuple[Saver], dict[str, Any]]:
        saver = ARMS[arm](raw)
        saver.get_tuple(head)
        return (saver,), {}

    answer = benchmark.pedantic(lambda saver: _read(saver, head), setup=restart, rounds=ROUNDS)
    assert answer == _read(raw, head)


@every_arm
@pytest.mark.benchmark(group="proxy: get_tuple")
def test_get_tuple(benchmark: BenchmarkFixture, raw: Saver, thread: Thread, arm: str) -> None:
    """What a pass-through call pays, learning included."""
    saver, head = ARMS[arm](raw), _head(raw, thread)
    answer = benchmark.pedantic(lambda: saver.get_tuple(head), rounds=10 * ROUNDS, warmup_rounds=5)
    assert answer == raw.get_tuple(head)


@every_arm
@pytest.mark.benchmark(group="put_writes")
def test_put_writes(benchmark: BenchmarkFixture, raw: Saver, thread: Thread, arm: str) -> None:
    """One message on the head, recording included."""
    saver = ARMS[arm](raw)
    _read(saver, _head(raw, thread))
    head = _step(saver, _head(raw, thread), DEPTH)
    writes = [(CHANNEL, [HumanMessage("hello")])]
    benchmark.pedantic(
        lambda task: saver.put_writes(head, writes, task),
        setup=lambda: ((str(uuid4()),), {}),
        rounds=10 * ROUNDS,
    )
    stored = raw.get_tuple(head)
    assert stored is not None
    assert len(stored.pending_writes or ()) == 10 * ROUNDS + 1
