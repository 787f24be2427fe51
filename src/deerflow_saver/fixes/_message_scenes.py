"""Probes of messages that are written without an id."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Overwrite

from deerflow_saver.fixes._fix import Finding
from deerflow_saver.fixes._scenes import compiled, thread

__all__ = ["Minted", "mint", "without_ids"]


def mint(current: list[Any] | None, writes: list[Any]) -> list[Any]:
    """A reducer of one's own that gives a message without an id a new one at every replay."""
    messages: Any = list(current or [])
    for write in writes:
        messages = add_messages(messages, write)
    return messages  # type: ignore[no-any-return]


class Minted(TypedDict, total=False):
    """Messages in a channel with a reducer of one's own."""

    messages: Annotated[list[Any], DeltaChannel(mint)]


class _Delivered(TypedDict, total=False):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


_DICT = {"role": "user", "content": "x"}
_FORMS: dict[str, Any] = {
    "message": [HumanMessage("x")],
    "tuple": [("user", "x")],
    "string": "x",
    "dict": [_DICT],
    "Overwrite": Overwrite([_DICT]),
}


def without_ids() -> Finding:
    """Two equal messages of each form, as input and by a node; read live and twice again."""
    wrong = [*_wrong(Minted, "own reducer"), *_wrong(_Delivered, "LangGraph's reducer")]
    return Finding(bool(wrong), "; ".join(wrong) or "ids are there, and the same at every read")


def _wrong(schema: Any, reducer: str) -> Iterator[str]:
    writing: list[Any] = []
    graph = compiled({"node": lambda _state: {"messages": writing.pop()}}, schema=schema)
    for form, write in _FORMS.items():
        writing.append(copy.deepcopy(write))
        live = _ids(graph.invoke({"messages": copy.deepcopy(write)}, thread(form)))
        reads = [_ids(graph.get_state(thread(form)).values) for _ in range(2)]
        trouble = _trouble(live, *reads, wanted=1 if form == "Overwrite" else 2)
        if trouble:
            yield f"{form} to {reducer}: {trouble}"


def _trouble(live: list[Any], once: list[Any], again: list[Any], *, wanted: int) -> str | None:
    if None in once or not once:
        return "no ids"
    if once != again:
        return "other ids at every read"
    if live != once:
        return "other ids after a reload"
    return None if len(set(once)) == wanted else "equal messages are one"


def _ids(state: Any) -> list[Any]:
    return [getattr(message, "id", None) for message in state["messages"]]
