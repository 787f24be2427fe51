"""Run as a program under LANGGRAPH_STRICT_MSGPACK=true, which is read when LangGraph loads.

Prints, as JSON, what is in a thread after its state was set through the accessor.
"""

from __future__ import annotations

import json
import operator
import sqlite3
import sys
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde._msgpack import STRICT_MSGPACK_ENABLED
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import CheckpointStateAccessor


@dataclass
class Note:
    """A type of the application's."""

    text: str


def extend(current: list[Note], writes: Any) -> list[Note]:
    """The reducer of a delta channel."""
    return [*current, *(note for write in writes for note in write)]


class Full(TypedDict, total=False):
    """In full mode."""

    log: Annotated[list[Note], operator.add]
    note: Note
    title: str


class Delta(TypedDict, total=False):
    """In delta mode."""

    log: Annotated[list[Note], DeltaChannel(extend)]
    note: Note
    title: str


def shown(mode: Any, saver: Any) -> str:
    """What the thread holds in the end."""
    builder: Any = StateGraph(Full if mode == "full" else Delta)
    builder.add_node("step", lambda _: {"log": [Note("step")], "note": Note("note")})
    builder.add_edge(START, "step")
    accessor = CheckpointStateAccessor.bind(builder.compile(), saver, mode=mode)
    thread: Any = {"configurable": {"thread_id": "1"}}
    accessor.graph.invoke({"title": "t"}, thread)
    accessor.replace(thread, {"title": "set"})
    accessor.replace(thread, {"log": [*accessor.get(thread).values["log"], Note("set")]})
    states = [accessor.get(thread), accessor.history(thread, limit=1)[0]]
    return repr([dict(sorted(state.values.items())) for state in states])


def main() -> None:
    """Both modes on two savers."""
    out: dict[str, Any] = {"strict": STRICT_MSGPACK_ENABLED}
    for mode in ("full", "delta"):
        out[f"{mode} memory"] = shown(mode, InMemorySaver())
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        out[f"{mode} sqlite"] = shown(mode, CachedHistorySaver(SqliteSaver(connection)))
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
