"""Random histories of a thread, and what it shows: the same in either mode, if all is well."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st
from langgraph.types import Command

from deerflow_saver import WriteSlotTakenError
from deerflow_saver.channel_mode import with_checkpoint_mode
from deerflow_saver.state import CheckpointStateAccessor
from support.modes import compiled, thread, visible
from support.upstream import keeps_parallel_order

__all__ = [
    "OPERATIONS", "Process", "keeps_paused_steps_apart", "keeps_the_first_write", "operations",
]  # fmt: skip

OPERATIONS = ("turn", "ask", "answer", "update", "replace", "compact", "branch", "page")
_PAUSES = ("ask", "answer")
_numbers = count()


def operations(saver: Any, max_size: int = 10) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Histories: operations and a number each to vary them; pauses, if `saver` bears them."""
    paused = keeps_paused_steps_apart(saver)
    known = [name for name in OPERATIONS if name not in _PAUSES or paused]
    one = st.tuples(st.sampled_from(known), st.integers(0, 5))
    return st.lists(one, min_size=1, max_size=max_size)


def _same(saver: Any, before: list[str], after: list[str]) -> bool:
    """Whether a thread that turns delta in the middle shows what one that stays full does."""
    full = Process(saver, "full")
    turned = Process(saver, "full")
    for name in before:
        full.perform(name, 0)
        turned.perform(name, 0)
    delta = Process(saver, "delta", 50, turned.thread_id)
    for name in after:
        full.perform(name, 0)
        delta.perform(name, 0)
    return bool(delta.shown() == full.shown())


def keeps_paused_steps_apart(saver: Any) -> bool:
    """False before LangGraph 1.2.13: what a step given up in a pause wrote comes back.

    Also where the saver replays the writes of the finished and of the resumed task by chance,
    and before 1.2.15, where an update as the finished task is lost, or refused by the guard.
    """
    pauses = (["ask", "turn"], ["ask", "answer", "turn"], ["ask", "update"])
    try:
        return keeps_parallel_order(saver) and all(_same(saver, [], after) for after in pauses)
    except WriteSlotTakenError:
        return False


def keeps_the_first_write(saver: Any) -> bool:
    """False for an InMemorySaver before 4.2.0, unless something mends it."""
    return _same(saver, ["update"], ["update", "update"])


@dataclass
class Process:
    """A process in one mode at work on a thread."""

    saver: Any
    mode: Any
    frequency: int = 3
    thread_id: str = ""
    accessor: CheckpointStateAccessor = field(init=False)

    def __post_init__(self) -> None:
        self.thread_id = self.thread_id or f"thread-{next(_numbers)}"
        graph = compiled(self.mode, None, self.frequency)
        self.accessor = CheckpointStateAccessor.bind(graph, self.saver, mode=self.mode)

    @property
    def config(self) -> Any:
        return thread(self.thread_id)

    def perform(self, name: str, n: int) -> Any:
        """One operation; gives what it showed."""
        return getattr(self, f"_{name}")(n)

    def _run(self, what: Any) -> Any:
        out = self.accessor.graph.invoke(what, with_checkpoint_mode(self.config, self.mode))
        return {k: v for k, v in out.items() if v not in ([], {}, set())} if out else out

    def _turn(self, n: int) -> Any:
        out = self._run({"log": [f"in {n}"], "do": "work"})
        return {k: v for k, v in out.items() if k != "__interrupt__"}

    def _ask(self, n: int) -> Any:
        out = self._run({"log": [f"in {n}"], "do": "ask"})
        return {k: v for k, v in out.items() if k != "__interrupt__"}

    def _answer(self, n: int) -> Any:
        if not self.accessor.get(self.config).interrupts:
            return None
        return self._run(Command(resume=f"yes {n}"))

    def _update(self, n: int) -> None:
        values = {"log": [f"update {n}"], "facts": {f"u{n % 2}": n}, "tags": {f"u{n}"}}
        names = list(values)
        chosen = {name: values[name] for name in names[: 1 + n % 3]}
        self.accessor.update(self.config, chosen, as_node="work")

    def _replace(self, n: int) -> None:
        values: Any = {"facts": {"only": n}, "tags": {"only"}, "log": [f"r{n}"], "title": f"t{n}"}
        names = list(values)[n % 4 :]
        self.accessor.replace(self.config, {name: values[name] for name in names})

    def _compact(self, n: int) -> None:
        log = self.accessor.get(self.config).values.get("log") or []
        if len(log) > n:
            kept = log[-n:] if n else []
            summary = [f"summary of {len(log) - n}"]
            self.accessor.replace(self.config, {"log": summary + kept, "title": "compacted"})

    def _branch(self, n: int) -> None:
        """Go on in a new thread that begins with a state of this one."""
        states = [values for values, *_ in self.shown()[1]]
        if states:
            values = dict(states[n % len(states)])
            values.pop("hint", None)
            self.thread_id = f"{self.thread_id}/{n}"
            if not self.accessor.history(self.config, limit=1):
                self.accessor.replace(self.config, values)

    def _page(self, n: int) -> list[Any]:
        first = self.accessor.history(self.config, limit=n)
        before = first[-1].config if first else None
        return _recorded([*first, *self.accessor.history(self.config, limit=2, before=before)])

    def shown(self) -> Any:
        """The live state and every recorded one, as a reader sees them."""
        live = _shown(self.accessor.get(self.config))
        return live, _recorded(self.accessor.history(self.config))


def _recorded(states: list[Any]) -> list[Any]:
    """States that hold anything: LangGraph before 1.2.5 needs an empty one to begin with."""
    return [shown for shown in map(_shown, states) if any(shown)]


def _shown(state: Any) -> Any:
    asked = [interrupt.value for interrupt in state.interrupts]
    return visible(state), sorted(state.next), asked
