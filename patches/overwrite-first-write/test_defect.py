"""A reducer channel whose type cannot be called is empty until its first write."""

from __future__ import annotations

import pytest
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.errors import InvalidUpdateError
from langgraph.types import Overwrite


def empty_channel() -> BinaryOperatorAggregate:
    channel = BinaryOperatorAggregate(dict | None, lambda _, new: new)
    channel.key = "settings"
    return channel


def test_a_first_overwrite_is_unwrapped() -> None:
    channel = empty_channel()
    channel.update([Overwrite({"a": 1})])
    assert channel.get() == {"a": 1}


def test_a_first_overwrite_replaces_its_siblings() -> None:
    channel = empty_channel()
    channel.update([Overwrite({"a": 1}), {"b": 2}])
    assert channel.get() == {"a": 1}


def test_a_second_overwrite_in_the_same_step_is_refused() -> None:
    with pytest.raises(InvalidUpdateError):
        empty_channel().update([Overwrite({"a": 1}), Overwrite({"a": 2})])


def test_a_first_plain_write_is_the_value() -> None:
    channel = empty_channel()
    channel.update([{"a": 1}, {"b": 2}])
    assert channel.get() == {"b": 2}
