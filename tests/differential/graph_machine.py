"""Random histories of a compiled graph: runs, interrupts, updates, forks, time travel."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.types import Command

from differential.equality import assert_same
from differential.graphs import CHANNELS, PARALLEL, TURNS, Fault, builder, update
from differential.hosts import Face, Host
from differential.machines import BUDGETS, ISOLATIONS, Machine
from support.upstream import reloads_what_ran

__all__ = ["GraphHistories"]

numbers = st.integers(0, 11)
turns = st.sampled_from(TURNS)
durabilities = st.sampled_from(("sync", "async", "exit"))
_REFUSALS = (Fault, EmptyInputError, InvalidUpdateError)
"""How a run may end where the script asks for what LangGraph does not do."""
_METADATA = ("source", "step")
_RECENT = 6


class GraphHistories(Machine):
    """Runs a graph on the wrapped saver; states read through it equal those read through the raw.

    With a `twin`, a raw saver on another database gets the same script: whatever the wrapped
    saver gave to the runs themselves must have led to the same states there.
    """

    twin: ClassVar[Host | None] = None
    channels = (*CHANNELS, "plain", "turn")

    @initialize(
        cadence=st.integers(2, 5),
        budget=st.sampled_from(BUDGETS),
        isolation=st.sampled_from(ISOLATIONS),
        eager=st.booleans(),
    )
    def begin(self, cadence: int, budget: int, isolation: str, *, eager: bool) -> None:
        self.thread = f"thread-{uuid4().hex}"
        self.builder = builder(cadence)
        self.raw = self.builder.compile(checkpointer=self.host.inner)
        self.other = self.twin and self.builder.compile(checkpointer=self.twin.inner)
        self.linear = True
        self.start(budget, isolation, eager=eager)
        self._compile()

    def _compile(self) -> None:
        self.graphs = [self.builder.compile(checkpointer=saver) for saver in self.wrappers]

    def _graph(self, number: int) -> Any:
        return self.graphs[number % len(self.graphs)]

    # -- writing, on every side ------------------------------------------------------------

    def _head(self) -> dict[str, Any]:
        return {"configurable": {"thread_id": self.thread}}

    def _past(self, host: Host, graph: Any, back: int) -> dict[str, Any] | None:
        """The config of an older checkpoint, by its place in the raw history."""
        states = host.collect("sync" if host.case.kind != "async" else "async", graph,
                              "get_state_history", self._head())  # fmt: skip
        if not states:
            return None
        config: dict[str, Any] = states[back % len(states)].config
        return {"configurable": dict(config["configurable"])}

    def _everywhere(
        self, number: int, method: str, value: Any, *, back: int | None = None, **options: Any
    ) -> None:
        """Call it on the wrapped graph and on its twin; both end alike."""
        face = self.face(number)
        ends = []
        sides: list[tuple[Host, Any, Any]] = [(self.host, self._graph(number), self.raw)]
        if self.twin is not None:
            sides.append((self.twin, self.other, self.other))
        configs = [
            self._head() if back is None else self._past(host, reader, back)
            for host, _, reader in sides
        ]
        for (host, graph, _), config in zip(sides, configs, strict=True):
            if config is not None:
                ends.append(self._end(host, face, graph, method, config, value(), options))
        if len(ends) == 2 and not any(isinstance(end, str) for end in ends):
            assert_same(
                _values(ends[0]), _values(ends[1]), what=f"{face} {method} on two databases"
            )
        elif len(ends) == 2:
            assert_same(*ends, what=f"{face} {method} on two databases")
        self.spoil(ends)

    def _end(
        self, host: Host, face: Face, graph: Any, method: str, config: Any, value: Any, options: Any
    ) -> Any:
        try:
            return host.call(face, graph, method, *_ordered(method, value, config), **options)
        except _REFUSALS as error:
            return type(error).__name__

    def _kind(self, kind: str) -> str:
        # Whether an edit in place is stored depends on when the raw saver serialises
        if kind == "edit" and self.twin is not None:
            return "work"
        # Where the raw saver loses the order of parallel writes, the wrapper's is the right one;
        # nor can forks be compared there: they leave writes of several tasks on one checkpoint
        return kind if reloads_what_ran() or kind not in PARALLEL else "work"

    @rule(kind=turns, n=st.integers(0, 2), durability=durabilities, number=numbers)
    def run_turn(self, kind: str, n: int, durability: str, number: int) -> None:
        self._everywhere(
            number,
            "invoke",
            lambda: {"turn": {"kind": self._kind(kind), "n": n}, **update("input", n)},
            durability=durability,
        )

    @rule(kind=turns, n=st.integers(0, 2), durability=durabilities, face=numbers)
    def another_process_runs_a_turn(self, kind: str, n: int, durability: str, face: int) -> None:
        """It has no wrapper, or one with a cache of its own."""
        wrapped, self.graphs = self.graphs, [self.raw]
        try:
            self.run_turn(kind=kind, n=n, durability=durability, number=face)
        finally:
            self.graphs = wrapped

    def _waiting(self) -> bool:
        host = self.host
        state = host.call(host.faces[-1], self.raw, "get_state", self._head())
        return bool(state.interrupts)

    @rule(answer=numbers, durability=durabilities, number=numbers, extra=st.booleans())
    def answer(self, answer: int, durability: str, number: int, *, extra: bool) -> None:
        """Resume where a node asked, perhaps with an update in the same command."""
        if self._waiting():
            self._everywhere(
                number,
                "invoke",
                lambda: Command(resume=answer, update=update("command", answer) if extra else None),
                durability=durability,
            )

    @rule(durability=durabilities, number=numbers)
    def carry_on(self, durability: str, number: int) -> None:
        """Run again what failed, was interrupted, or is done."""
        if self._started():
            self._everywhere(number, "invoke", lambda: None, durability=durability)

    def _started(self) -> bool:
        return self._past(self.host, self.raw, 0) is not None

    @rule(n=numbers, node=st.sampled_from(("work", "last", None)), number=numbers)
    def update_state(self, n: int, node: str | None, number: int) -> None:
        if node is not None or self._started():
            as_node = node or "other"
            self._everywhere(number, "update_state", lambda: update("update", n), as_node=as_node)

    @precondition(lambda _: reloads_what_ran())
    @rule(
        back=st.integers(1, 11),
        kind=turns,
        n=st.integers(0, 2),
        durability=durabilities,
        number=numbers,
    )
    def fork_by_turn(self, back: int, kind: str, n: int, durability: str, number: int) -> None:
        self.linear = False
        self._everywhere(
            number,
            "invoke",
            lambda: {"turn": {"kind": self._kind(kind), "n": n}, **update("fork", n)},
            back=back,
            durability=durability,
        )

    @precondition(lambda _: reloads_what_ran())
    @rule(back=st.integers(1, 11), durability=durabilities, number=numbers)
    def fork_by_replay(self, back: int, durability: str, number: int) -> None:
        self.linear = False
        self._everywhere(number, "invoke", lambda: None, back=back, durability=durability)

    @precondition(lambda _: reloads_what_ran())
    @rule(back=st.integers(1, 11), n=numbers, number=numbers)
    def fork_by_update(self, back: int, n: int, number: int) -> None:
        self.linear = False
        self._everywhere(
            number, "update_state", lambda: update("past", n), back=back, as_node="work"
        )

    @rule(number=numbers)
    def delete_thread(self, number: int) -> None:
        face = self.face(number)
        self.host.call(face, self.pick(number), "delete_thread", self.thread)
        if self.twin is not None:
            self.twin.call(face, self.twin.inner, "delete_thread", self.thread)
        self.linear = True

    # -- the wrapper's own life ------------------------------------------------------------

    @rule(kind=st.sampled_from(("copy", "allowlist", "shared")))
    def another_wrapper(self, kind: str) -> None:
        self.add_wrapper(kind)
        self._compile()

    @rule()
    def cold_restart(self) -> None:
        self.restart_wrapper()
        self._compile()

    @rule()
    def change_what_was_kept(self) -> None:
        self.spoil_held()

    # -- reading ---------------------------------------------------------------------------

    @rule(back=st.none() | numbers, number=numbers, nested=st.booleans(), spoiled=st.booleans())
    def read_state(self, back: int | None, number: int, *, nested: bool, spoiled: bool) -> None:
        config = self._head() if back is None else self._past(self.host, self.raw, back)
        if config is not None:
            states = [
                self.host.call(self.face(number), graph, "get_state", config, subgraphs=nested)
                for graph in (self._graph(number), self.raw)
            ]
            assert_same(*states, what=f"get_state {config['configurable']}")
            self.hold(states[0].values, spoiled=spoiled)

    @rule(limit=st.none() | st.integers(1, 5), before=st.none() | numbers, number=numbers)
    def read_history(self, limit: int | None, before: int | None, number: int) -> None:
        options: dict[str, Any] = {"limit": limit}
        if before is not None:
            options["before"] = self._past(self.host, self.raw, before)
        self._same_states(self._graph(number), self.face(number), **options)

    def _same_states(self, graph: Any, face: Face, **options: Any) -> None:
        states = [
            self.host.collect(face, each, "get_state_history", self._head(), **options)
            for each in (graph, self.raw)
        ]
        assert_same(*states, what=f"{face} get_state_history {options}")
        if self.linear and reloads_what_ran():  # else the raw saver's may differ, too
            for state in states[0]:
                log, plain = state.values.get("log", []), state.values.get("plain", [])
                assert_same(log, plain, what=f"delta and plain channel at step {state.metadata}")
        self.spoil([state.values for state in states[0]])

    def _same_on_two_databases(self, limit: int | None) -> None:
        if self.twin is None or not reloads_what_ran():  # else two raw databases differ, too
            return
        face = self.host.faces[-1]
        both = [
            host.collect(face, graph, "get_state_history", self._head(), limit=limit)
            for host, graph in ((self.host, self.graphs[0]), (self.twin, self.other))
        ]
        wrapped, raw = ([_comparable(state) for state in states] for states in both)
        assert_same(wrapped, raw, what="all states on two databases")

    def compare(self, limit: int | None = None) -> None:
        """All that can be read of the newest checkpoints, in every way."""
        for graph in self.graphs:
            self._same_states(graph, self.face(len(self.held)), limit=limit)
        self._same_on_two_databases(limit)
        self.same_everywhere([self.thread], limit=limit)

    @invariant()
    def wrapped_equals_raw(self) -> None:
        if self.eager:
            self.compare(limit=_RECENT)

    def teardown(self) -> None:
        if self.wrappers:
            self.compare()


def _ordered(method: str, value: Any, config: Any) -> tuple[Any, Any]:
    return (config, value) if method == "update_state" else (value, config)


def _comparable(state: Any) -> Any:
    """What does not depend on the ids of one database."""
    metadata = {name: state.metadata.get(name) for name in _METADATA}
    return (state.values, state.next, metadata)


def _values(end: Any) -> Any:
    """A run's output, or an update's config, without the ids of one database."""
    if not isinstance(end, dict) or "configurable" in end:
        return None
    return {name: value for name, value in end.items() if not name.startswith("__")}
