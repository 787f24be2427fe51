"""Apply, revert and report fixes. Thread-safe and idempotent; patches are process-wide."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from deerflow_saver.fixes._fix import (
    CannotPatchError,
    CannotRevertError,
    Defect,
    Patch,
    Presence,
    Row,
)
from deerflow_saver.fixes._looking import look

__all__ = ["SWITCH", "Registry"]

logger = logging.getLogger("deerflow_saver")

SWITCH = "DEERFLOW_SAVER_FIXES"
"""Environment variable: `off`, or the slugs that may be applied, joined by commas."""


class _State:
    """What happened to one defect's patch in this process."""

    __slots__ = ("applied", "disabled", "failure", "reverted", "settled", "wanted")

    def __init__(self) -> None:
        self.applied = False
        self.reverted = False
        self.failure: str | None = None
        self.settled = False
        """Whether an application was tried, so that `ensure` need not probe again."""
        self.disabled = 0
        """How many `disabled` blocks are open."""
        self.wanted = False
        """To be applied when the last of them ends."""


class Registry:
    """The known defects, and which of their patches are in place."""

    def __init__(self, defects: tuple[Defect, ...]) -> None:
        """See `deerflow_saver.fixes`."""
        self.defects = defects
        self._states = {defect.slug: _State() for defect in defects}
        self._lock = threading.RLock()

    # -- names ---------------------------------------------------------------------------------

    def named(self, names: Iterable[str] | None) -> tuple[Defect, ...]:
        """The defects of those slugs, in the registry's order; all for None."""
        if names is None:
            return self.defects
        asked = self._known((names,) if isinstance(names, str) else names, "unknown fix")
        return tuple(defect for defect in self.defects if defect.slug in asked)

    def _known(self, names: Iterable[str], complaint: str) -> frozenset[str]:
        asked = frozenset(names)
        unknown = sorted(asked.difference(self._states), key=str)
        if unknown:
            msg = (
                f"{complaint}: {', '.join(map(repr, unknown))}; "
                f"known are {', '.join(sorted(self._states))}"
            )
            raise ValueError(msg)
        return asked

    def selected(self, names: Iterable[str] | None = None) -> frozenset[str]:
        """The slugs of `names` (None: all) that the environment switch allows."""
        asked = frozenset(defect.slug for defect in self.named(names))
        switch = os.environ.get(SWITCH, "").strip()
        if switch == "off":
            return frozenset()
        listed = [name.strip() for name in switch.split(",") if name.strip()]
        if not listed or listed == ["auto"]:
            return asked
        return asked & self._known(listed, f"{SWITCH} names an unknown fix")

    # -- apply -----------------------------------------------------------------------------------

    def apply(self, names: Iterable[str] | None = None) -> tuple[Row, ...]:
        """Probe, patch what is broken, and probe again."""
        chosen = self.named(names)
        allowed = self.selected(defect.slug for defect in chosen)
        with self._lock:
            for defect in chosen:
                if defect.slug in allowed:
                    self._apply(defect)
            return tuple(self._row(defect, allowed) for defect in chosen)

    def ensure(self, names: Iterable[str]) -> None:
        """`apply`, but without probing again what was tried before."""
        patches = [d for d in self.named(self.selected(names)) if isinstance(d.remedy, Patch)]
        if all(self._states[defect.slug].settled for defect in patches):
            return
        with self._lock:
            for defect in patches:
                if not self._states[defect.slug].settled:
                    self._apply(defect)

    def _apply(self, defect: Defect) -> None:
        state, patch = self._states[defect.slug], defect.remedy
        if not isinstance(patch, Patch) or state.applied:
            return
        if state.disabled:
            state.wanted = True
            return
        state.failure = None
        if look(defect).presence is Presence.PRESENT:
            state.failure = self._put(defect, patch, state)
            if state.failure:
                logger.warning("fix %s is not in place: %s", defect.slug, state.failure)
        state.settled = True  # last: `ensure` reads it without the lock

    def _put(self, defect: Defect, patch: Patch, state: _State) -> str | None:
        """Put a patch in place; why that failed, or None."""
        try:
            patch.apply()
        except CannotPatchError as error:
            return f"cannot be patched: {error}"
        except Exception as error:  # noqa: BLE001 - a release that nobody foresaw is a row, too
            return f"cannot be patched: {type(error).__name__}: {error}"
        state.applied = True  # before the probe, which Ctrl-C may end: it can be reverted then
        presence, evidence, _ = look(defect)
        if presence is Presence.ABSENT:
            state.reverted = False
            return None
        state.applied = False
        try:
            patch.revert()
        except CannotRevertError as error:
            evidence += f"; {error}"
        return f"patched, which did not help, and taken back: {evidence}"

    # -- revert ------------------------------------------------------------------------------------

    def revert(self, names: Iterable[str] | None = None) -> tuple[Row, ...]:
        """Take patches back."""
        chosen = self.named(names)
        with self._lock:
            for defect in chosen:
                state = self._states[defect.slug]
                state.wanted = state.settled = False
                self._revert(defect, state)
            # What the switch allows does not matter here, and a mistake in it must not, either
            return tuple(self._row(defect, frozenset(self._states)) for defect in chosen)

    def _revert(self, defect: Defect, state: _State) -> None:
        """Take a patch back, or what an earlier revert could not take out."""
        patch, was_applied = defect.remedy, state.applied
        if not isinstance(patch, Patch) or not (state.applied or state.failure):
            return
        state.applied = False
        try:
            patch.revert()
        except CannotRevertError as error:
            state.failure = str(error)
        else:
            state.failure, state.reverted = None, state.reverted or was_applied

    @contextmanager
    def disabled(self, *names: str) -> Iterator[None]:
        """Take patches back for a block, process-wide; all of them without names."""
        chosen = self.named(names or None)
        with self._lock:
            for defect in chosen:
                state = self._states[defect.slug]
                state.disabled += 1
                state.wanted = state.wanted or state.applied
                self._revert(defect, state)
        try:
            yield
        finally:
            with self._lock:
                for defect in chosen:
                    self._enable(defect)

    def _enable(self, defect: Defect) -> None:
        state = self._states[defect.slug]
        state.disabled -= 1
        if not state.disabled and state.wanted:
            state.wanted = False
            self._apply(defect)

    # -- report -----------------------------------------------------------------------------------

    def applied(self) -> frozenset[str]:
        """The slugs whose patch is in place; nothing is probed."""
        with self._lock:
            return frozenset(slug for slug, state in self._states.items() if state.applied)

    def status(self, names: Iterable[str] | None = None) -> tuple[Row, ...]:
        """Probe, change nothing."""
        chosen, allowed = self.named(names), self.selected()
        with self._lock:
            return tuple(self._row(defect, allowed) for defect in chosen)

    def _row(self, defect: Defect, allowed: frozenset[str]) -> Row:
        presence, evidence, savers = look(defect)
        state = self._states[defect.slug]
        if isinstance(defect.remedy, Patch) and presence in {Presence.PRESENT, Presence.ABSENT}:
            presence, note = _judge(presence, state, defect.slug in allowed)
            evidence += note
        return Row.of(defect, presence, evidence, savers)


def _judge(seen: Presence, state: _State, allowed: bool) -> tuple[Presence, str]:  # noqa: FBT001
    """What a patchable defect's probe and history amount to, and a note for the evidence."""
    if state.failure:
        return Presence.FAILED, f"; {state.failure}"
    if seen is Presence.ABSENT:
        return (Presence.FIXED if state.applied else Presence.ABSENT), ""
    if state.applied:
        return Presence.FAILED, "; the patch was in place and has lost its effect"
    note = ""
    if state.disabled:
        note = "; disabled for a block of code"
    elif not allowed:
        note = f"; switched off by {SWITCH}"
    return (Presence.REVERTED if state.reverted else Presence.PRESENT), note
