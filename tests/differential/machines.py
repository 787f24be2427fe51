"""What both machines share: wrappers round one database, and the comparison with the raw saver."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from deerflow_saver import CachedHistorySaver, MemoryHistoryCache
from differential.equality import assert_same
from differential.hosts import BaseWalk, Face, Host
from differential.values import spoil

__all__ = ["BUDGETS", "ISOLATIONS", "Machine", "run"]

BUDGETS = (64 << 20, 64 << 20, 20_000, 3_000)
"""Roomy, and so tight that threads are trimmed or evicted all the time."""
ISOLATIONS = ("safe", "safe", "copy")
_MAX_HELD = 6

M = TypeVar("M", bound="Machine")


def run(machine: type[Machine], chosen: settings, **attributes: Any) -> None:
    """Run `machine` with class attributes (its hosts); a blob goes on the machine's class."""
    run_state_machine_as_test(type(machine.__name__, (machine,), attributes), settings=chosen)


class Machine(RuleBasedStateMachine):
    """Keeps wrappers round `host.inner`; whatever they answer is what `host.inner` answers."""

    host: ClassVar[Host]
    channels: ClassVar[Sequence[str]]

    def __init__(self) -> None:
        super().__init__()
        self.wrappers: list[Any] = []
        self.held: list[Any] = []
        self.eager = False
        self._turn = 0

    def start(self, budget: int, isolation: str, *, eager: bool) -> None:
        """Wrap afresh, with nothing known; an eager machine compares after every step."""
        self.budget, self.isolation, self.eager = budget, isolation, eager
        self.prefix = f"database-{id(self)}"
        self.cache = MemoryHistoryCache(budget)
        self.wrappers = [self._wrap(self.host.inner)]

    def _wrap(self, inner: Any) -> CachedHistorySaver:
        return CachedHistorySaver(
            inner,
            self.cache,
            key_prefix=self.prefix,
            isolation=self.isolation,  # type: ignore[arg-type]
            guard="off",  # or it refuses the forks that a raw saver stores
        )

    def pick(self, number: int) -> Any:
        """One of the wrappers."""
        return self.wrappers[number % len(self.wrappers)]

    def face(self, number: int) -> Face:
        """One of the faces the saver has."""
        return self.host.faces[number % len(self.host.faces)]

    # -- changes of the wrapper, not of the data -------------------------------------------

    def restart_wrapper(self) -> None:
        """A new process: everything known is gone."""
        self.start(self.budget, self.isolation, eager=self.eager)

    def add_wrapper(self, kind: str) -> None:
        """Another wrapper that shares the cache."""
        base = self.wrappers[0]
        if kind == "copy":
            made = copy.copy(base)
        elif kind == "allowlist":
            made = base.with_allowlist([("somewhere", "Something")])
        else:
            made = self._wrap(self.host.other)
        self.wrappers = [*self.wrappers[-2:], made]

    def spoil(self, value: Any) -> None:
        """Change all of a result, or of what was passed in, as its owner may."""
        # The raw memory saver keeps a bytearray itself, as its serialiser gives it back
        spoil(value, bytearrays=self.host.case.name != "memory")

    def hold(self, result: Any, *, spoiled: bool) -> None:
        """Do to a result what a caller may: change all of it at once, or keep it for later."""
        if spoiled:
            self.spoil(result)
        else:
            self.held = [*self.held[1 - _MAX_HELD :], result]

    def spoil_held(self) -> None:
        """Change every kept result now."""
        for result in self.held:
            self.spoil(result)
        self.held = []

    # -- comparisons -----------------------------------------------------------------------

    def same_history(
        self, wrapper: Any, face: Face, config: Any, channels: Sequence[str], *, spoiled: bool
    ) -> None:
        """One read of a delta history gives what the raw saver gives, or should have given."""
        name = "get_delta_channel_history"
        answers = [
            self.host.call(face, saver, name, config=copy.deepcopy(config), channels=list(channels))
            for saver in (wrapper, self.host.inner)
        ]
        what = f"{face} {name} {config['configurable']} {list(channels)}"
        try:
            assert_same(*answers, what=what)
        except AssertionError:
            # Where the raw walk loses rows or their order, the base class's walk is the measure
            right = BaseWalk(wrapper._self_core.walker)
            answer = self.host.call(face, right, name, config=config, channels=list(channels))
            assert_same(answers[0], answer, what=what)
        self.hold(answers[0], spoiled=spoiled)

    def same_row(self, wrapper: Any, face: Face, config: Any, *, spoiled: bool) -> None:
        """One read of a checkpoint gives what the raw saver gives."""
        answers = [
            self.host.call(face, saver, "get_tuple", copy.deepcopy(config))
            for saver in (wrapper, self.host.inner)
        ]
        assert_same(*answers, what=f"{face} get_tuple {config['configurable']}")
        self.hold(answers[0], spoiled=spoiled)

    def same_rows(self, wrapper: Any, face: Face, config: Any, **options: Any) -> None:
        """One listing gives what the raw saver lists."""
        answers = [
            self.host.collect(face, saver, "list", copy.deepcopy(config), **options)
            for saver in (wrapper, self.host.inner)
        ]
        assert_same(*answers, what=f"{face} list {config['configurable']} {options}")
        self.hold(answers[0], spoiled=True)

    def same_everywhere(
        self, threads: Iterable[str], *, order: str = "newest first", limit: int | None = None
    ) -> None:
        """Every history of every stored checkpoint, through every wrapper, in some order."""
        self._turn += 1
        face = self.face(self._turn)
        for thread in threads:
            whole = {"configurable": {"thread_id": thread}}
            rows = self.host.collect(
                self.host.faces[0], self.host.inner, "list", whole, limit=limit
            )
            configs = [row.config for row in rows]
            if order == "oldest first":
                configs.reverse()
            for wrapper in self.wrappers:
                for config in configs:
                    self.same_history(
                        wrapper, face, config, self.channels, spoiled=bool(self._turn % 2)
                    )
