"""`--saver module:factory`: whatever shape a saver is offered in, it comes out open."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from deerflow_saver.doctor.opening import CannotOpenError, opened

SAVER = InMemorySaver()
CLOSED: list[str] = []


@contextmanager
def _managed() -> Iterator[InMemorySaver]:
    yield SAVER
    CLOSED.append("managed")


@asynccontextmanager
async def _async_managed() -> AsyncIterator[InMemorySaver]:
    yield SAVER
    CLOSED.append("async managed")


async def _awaited() -> InMemorySaver:
    return SAVER


def _needs_a_loop() -> AsyncSqliteSaver:
    import aiosqlite

    return AsyncSqliteSaver(aiosqlite.connect(":memory:"))


@contextmanager
def _fails_to_close() -> Iterator[InMemorySaver]:
    yield SAVER
    message = "still in use"
    raise OSError(message)


class _Odd:
    """Not even its class can be told."""

    @property
    def __class__(self) -> Any:
        message = "no class"
        raise ValueError(message)


def _fails() -> None:
    message = "no such host"
    raise OSError(message)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made: Any = ModuleType("offered")
    made.saver = SAVER
    made.factory = lambda: SAVER
    made.managed, made.async_managed, made.awaited = _managed, _async_managed, _awaited
    made.needs_a_loop, made.fails = _needs_a_loop, _fails
    made.number = 3
    made.exits, made.odd = sys.exit, _Odd()
    made.fails_to_close = _fails_to_close
    made.nests = lambda: made.factory
    made.nested = ModuleType("nested")
    made.nested.factory = made.factory
    monkeypatch.setitem(sys.modules, "offered", made)
    return made


@pytest.mark.parametrize(
    "name", ["saver", "factory", "managed", "async_managed", "awaited", "nested.factory"]
)
def test_a_saver_comes_out_of(module: ModuleType, name: str) -> None:
    with opened(f"offered:{name}") as there:
        assert there.saver is SAVER


def test_a_factory_that_needs_a_running_loop_is_called_inside_one(module: ModuleType) -> None:
    with opened("offered:needs_a_loop") as there:
        assert isinstance(there.saver, AsyncSqliteSaver)


def test_what_was_entered_is_left_again(module: ModuleType) -> None:
    CLOSED.clear()
    for name in ("managed", "async_managed"):
        with opened(f"offered:{name}"):
            assert not CLOSED or CLOSED == ["managed"]
    assert CLOSED == ["managed", "async managed"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("offered", "takes module:factory"),
        ("offered:", "takes module:factory"),
        ("no_such_module_anywhere:f", "No module named"),
        ("offered:absent", "absent"),
        ("offered:number", "gives a int, not a BaseCheckpointSaver"),
        ("offered:fails", "raised OSError: no such host"),
        ("offered:exits", "raised SystemExit"),
        ("offered:odd", "raised ValueError: no class"),
        ("offered:nests", "gives a function, not a BaseCheckpointSaver; call it"),
        ("offered:fails_to_close", "closing offered:fails_to_close raised OSError: still in use"),
    ],
)
def test_what_gives_no_saver_is_refused_with_the_reason(
    module: ModuleType, name: str, complaint: str
) -> None:
    with pytest.raises(CannotOpenError, match=complaint), opened(name):
        pass


def test_an_error_of_the_block_is_not_taken_for_one_of_closing(module: ModuleType) -> None:
    with pytest.raises(LookupError, match="mine"), opened("offered:managed"):
        raise LookupError("mine")
