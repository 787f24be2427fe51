"""Small graphs for the probes. Import this in probes only: it imports LangGraph's graphs.

`log` is a delta channel and `ref` a plain reducer channel that gets the same writes, so
where the two differ, the delta channel is wrong.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from deerflow_saver.fixes._fix import Finding

__all__ = ["Saver", "State", "agreement", "chain", "compiled", "extend", "said", "thread"]


def extend(current: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    """A reducer as delta channels need it: appends every write's items."""
    return [*(current or []), *itertools.chain.from_iterable(writes)]


class State(TypedDict, total=False):
    """The same words in both kinds of channel."""

    log: Annotated[list[str], DeltaChannel(extend)]
    ref: Annotated[list[str], operator.add]
    other: int


def said(*words: str) -> dict[str, list[str]]:
    """A write of `words` to both channels."""
    return {"log": list(words), "ref": list(words)}


_numbers = itertools.count()


class Saver(InMemorySaver):
    """Versions that differ from branch to branch without the process's random numbers."""

    def get_next_version(self, current: Any, channel: None) -> str:  # noqa: ARG002
        """Count up, and never the same twice: values are stored by version."""
        return f"{int(str(current or 0).split('.')[0]) + 1:032}.{next(_numbers):016}"


def compiled(
    nodes: Mapping[str, Any],
    edges: Sequence[tuple[str, str]] = (),
    *,
    schema: Any = State,
    saver: Any = None,
    **options: Any,
) -> Any:
    """A graph of `nodes`, side by side unless `edges` say otherwise."""
    builder: Any = StateGraph(schema)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for start, end in edges or [pair for n in nodes for pair in ((START, n), (n, END))]:
        builder.add_edge(start, end)
    return builder.compile(checkpointer=saver or Saver(), **options)


def chain(**nodes: Any) -> Any:
    """A graph of `nodes`, one after the other."""
    names = [START, *nodes, END]
    return compiled(nodes, list(itertools.pairwise(names)))


def thread(name: str = "probe") -> Any:
    """The config of a thread."""
    return {"configurable": {"thread_id": name}}


def agreement(**read: Any) -> Finding:
    """A finding from named states: present if any has other words in `log` than in `ref`."""
    pairs = {name: (state.get("log") or [], state.get("ref") or []) for name, state in read.items()}
    seen = [f"{name}: delta {log}, plain {ref}" for name, (log, ref) in pairs.items()]
    return Finding(any(log != ref for log, ref in pairs.values()), "; ".join(seen))
