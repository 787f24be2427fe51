"""Run as a program under LANGGRAPH_STRICT_MSGPACK=true, which is read when LangGraph loads.

Two graphs share one thread. The schema of one names the type `Note`, so LangGraph lets it
be decoded; that of the other does not. Prints, as JSON, what every read of both shows.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde._msgpack import STRICT_MSGPACK_ENABLED
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from deerflow_saver import CachedHistorySaver
from support.ciphers import Rotation
from support.conversation import append, merge

Saver = BaseCheckpointSaver[Any]


@dataclass
class Note:
    """A type of the application's."""

    text: str


@dataclass
class Secret:
    """A type that no schema names."""

    text: str


class Knowing(TypedDict, total=False):
    """A state whose schema names `Note`."""

    log: Annotated[list[Note], DeltaChannel(append, snapshot_frequency=3)]
    facts: Annotated[dict[str, Note], DeltaChannel(merge, snapshot_frequency=1000)]


class Ignorant(TypedDict, total=False):
    """The same channels, of no type in particular."""

    log: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=3)]
    facts: Annotated[dict[str, Any], DeltaChannel(merge, snapshot_frequency=1000)]


def _step(state: Any) -> Any:
    number = len(state["log"])
    return {
        "log": [Note(f"step {number}"), Secret(f"step {number}")],
        "facts": {str(number): Note(f"fact {number}")},
    }


def _graph(schema: type, saver: Saver) -> Any:
    builder: Any = StateGraph(schema)
    builder.add_node("step", _step)
    builder.add_edge(START, "step")
    builder.add_edge("step", END)
    return builder.compile(checkpointer=saver)


def observe(saver: Saver) -> list[str]:
    """Run both graphs in turn on one thread, and read through both after each run."""
    graphs = {schema: _graph(schema, saver) for schema in (Knowing, Ignorant)}
    config: Any = {"configurable": {"thread_id": "1"}}
    seen = []
    for number, schema in enumerate([Knowing, Ignorant, Knowing, Ignorant]):
        graphs[schema].invoke({"log": [Note(f"input {number}")]}, config)
        for _ in range(2):
            for reader in graphs.values():
                seen.append(repr(reader.get_state(config).values))
                seen.extend(repr(state.values) for state in reader.get_state_history(config))
        head = saver.get_tuple(config)
        assert head is not None
        for checkpointer in (*(graph.checkpointer for graph in graphs.values()), saver):
            histories = checkpointer.get_delta_channel_history(
                config=head.config, channels=["log", "facts"]
            )
            seen.extend(_shown(history) for history in histories.values())
    return seen


def _shown(history: Any) -> str:
    """A history without its task ids, which are random."""
    return repr((history.get("seed"), [value for _, _, value in history["writes"]]))


def savers(name: str) -> Saver:
    """A raw saver by the name of its case."""
    if name == "encrypted":
        return InMemorySaver(serde=EncryptedSerializer(Rotation()))
    if name == "sqlite":
        return SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
    return InMemorySaver()


def main() -> None:
    """Print what is seen raw and wrapped, by case."""
    found = {}
    for name in ("memory", "sqlite", "encrypted"):
        saver: Any = CachedHistorySaver(savers(name))
        found[name] = {
            "raw": observe(savers(name)),
            "wrapped": observe(saver),
            "hits": saver.cache_info().hits,
        }
    json.dump({"strict": STRICT_MSGPACK_ENABLED, "cases": found}, sys.stdout)


if __name__ == "__main__":
    main()
