"""What a known upstream defect is: how it is seen, and what is done about it.

A defect is told by behaviour, never by a version number: its probe builds the smallest
situation that shows it, in memory, and looks at the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

__all__ = [
    "Advice", "CannotPatchError", "CannotRevertError", "Defect", "Finding", "InWrapper", "Patch",
    "Presence", "RefusedByGuard", "Remedy", "Row",
]  # fmt: skip


class Presence(StrEnum):
    """What is known of a defect in this process."""

    PRESENT = "present"
    ABSENT = "absent"
    FIXED = "fixed-here"
    """A runtime patch of this package is in place and the probe sees no defect any more."""
    REVERTED = "reverted"
    """The patch was in place and has been taken back; the defect shows again."""
    FAILED = "failed"
    """Probe, patch or revert failed; the evidence says how."""
    UNKNOWN = "not-installed"
    """The distribution that has the defect is not installed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe saw.

    Attributes:
        present: whether the defect is here.
        evidence: in words.
        savers: of the savers it lives in, the kinds it was seen on; empty if that is not told.

    """

    present: bool
    evidence: str
    savers: tuple[str, ...] = ()


class CannotPatchError(Exception):
    """The installed release lacks what a patch hooks; nothing was changed."""


class CannotRevertError(Exception):
    """Somebody else wrapped a patched attribute, so that it cannot be put back."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A process-wide, reversible change of the defective code.

    Attributes:
        apply: puts it in place; raises `CannotPatchError` before anything is changed.
        revert: restores the very objects that were there; raises `CannotRevertError`.
        text: what to do where it cannot be applied.
        unguarded: needed only where the guard lets forks through (`"observe"`, `"off"`).

    """

    apply: Callable[[], None]
    revert: Callable[[], None]
    text: str = "update the distribution"
    unguarded: bool = False


@dataclass(frozen=True, slots=True)
class InWrapper:
    """`CachedHistorySaver` answers rightly by itself, or refuses, whatever the guard's policy."""

    text: str


@dataclass(frozen=True, slots=True)
class RefusedByGuard:
    """The guard, or the constructor, refuses what would go wrong."""

    text: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Nothing can be done here: what to do instead."""

    text: str


Remedy = Patch | InWrapper | RefusedByGuard | Advice


@dataclass(frozen=True, slots=True)
class Defect:
    """One known defect of a released distribution.

    Attributes:
        slug: lower-case words joined by dashes; also the folder under `patches/`.
        symptom: one line, as a user would see it.
        upstream: issues and pull requests, as `"langgraph#8443"`; empty if none is known.
        distribution: the distribution that has to change, as on the package index.
        probe: in memory, under 50 ms, no global state changed.
        remedy: what this package does about it.
        severity: `"loses"` or `"corrupts"` data, is `"slow"`, or `"raises"`.
        savers: those of `"memory"`, `"sqlite"`, `"postgres"` it lives in; empty for langgraph.

    """

    slug: str
    symptom: str
    upstream: tuple[str, ...]
    distribution: str
    probe: Callable[[], Finding]
    remedy: Remedy
    severity: Literal["loses", "corrupts", "slow", "raises"]
    savers: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """The remedy's: `"patch"`, `"wrapper"`, `"guard"` or `"advice"`."""
        return _KINDS[type(self.remedy)]


_KINDS = {Patch: "patch", InWrapper: "wrapper", RefusedByGuard: "guard", Advice: "advice"}


@dataclass(frozen=True, slots=True)
class Row:
    """The state of one defect in this process.

    Attributes:
        slug: which defect.
        presence: what is known of it.
        evidence: what the probe saw, or why something failed.
        remedy: `"patch"`, `"wrapper"`, `"guard"` or `"advice"`.
        advice: what the remedy covers, or what to do instead.
        savers: the kinds of savers it was seen on; empty for a defect of LangGraph's own.

    """

    slug: str
    presence: Presence
    evidence: str
    remedy: str
    advice: str
    savers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, defect: Defect, presence: Presence, evidence: str, savers: tuple[str, ...] = ()
    ) -> Row:
        """The row of `defect`; where it is not told apart, it is in every saver it lives in."""
        told = savers or tuple(sorted(defect.savers))
        return cls(defect.slug, presence, evidence, defect.kind, defect.remedy.text, told)
