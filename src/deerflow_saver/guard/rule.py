"""The rule: which writes keep a namespace a line. A pure function of what is known.

Per (thread, namespace), with H the stored checkpoint with the greatest id (the head), P the
checkpoint a call addresses and C the one it puts. `put` is asked in a delta namespace:

| P | C | otherwise | verdict |
|---|---|---|---|
| any | is H | P is H's own parent | accepted (the same put again) |
| any | is H | P is not | `"other parent"` |
| none | | no H | accepted (the first checkpoint) |
| none | | H | `"second root"` |
| not stored, or newer than H | | | `"orphan"` |
| older than H | | | `"fork"` |
| is H | not newer than H | | `"backwards"` |
| is H | newer | H has delta rows this run neither read nor wrote | `"foreign writes"` |
| is H | newer | C is a copy of H that leaves out delta rows which H has | `"unapplied writes"` |
| is H | newer | | accepted |

`put_writes` is asked if it may carry a delta channel, or always where the guard is strict:

| P | otherwise | verdict |
|---|---|---|
| newer than H, or no H | its own put is still under way, or has yet to begin | accepted |
| newer than H | the run goes on from another checkpoint than H | as its put will be |
| is H | the writes carry a delta channel and H has such rows this run neither read nor wrote | \
`"foreign writes"` |
| is H | | accepted |
| older than H | the writes carry a delta channel | `"fork"` |
| older than H | the writes answer an interrupt, and another run put P's child | `"fork"` |
| older than H | strict, and another run put P's child | `"late write"` |
| older than H | | accepted (a late write, harmless to delta channels) |

What builds on a refused write is refused before it is asked about, with the first reason: older
releases of LangGraph go on to store the next checkpoint when a put failed.

By induction the newest checkpoint is then the only leaf, so no call needs to look for children.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Place", "PutFacts", "Reason", "WriteFacts", "judge_put", "judge_writes"]

Reason = Literal[
    "fork",
    "orphan",
    "second root",
    "backwards",
    "other parent",
    "foreign writes",
    "unapplied writes",
    "late write",
    "slot taken",
]

Place = Literal["older", "head", "newer"]
"""Where an id stands, in the order of the database that keeps it."""


class PutFacts(NamedTuple):
    """What a put into a delta namespace is judged by."""

    head: str | None
    """Id of the newest stored checkpoint."""
    head_parent: str | None
    parent: str | None
    """The checkpoint the put names as parent."""
    parent_place: Place
    child: str
    """Id of the checkpoint being put."""
    child_place: Place
    foreign: bool = False
    """Whether the head has delta rows that this run neither read nor wrote."""
    unapplied: bool = False
    """Whether the head has delta rows that the child, a copy of it, leaves out."""


class WriteFacts(NamedTuple):
    """What a put_writes into a delta namespace is judged by."""

    head: str | None
    place: Place
    """Where the addressed checkpoint stands."""
    delta: bool
    """Whether the writes carry a delta channel."""
    foreign: bool = False
    answer: bool = False
    """Whether the writes answer an interrupt, so that the tasks they resume will write too."""
    strict: bool = False
    own_child: bool = False
    """Whether this run put the child of the addressed checkpoint."""
    coming: Reason | None = None
    """Why the put of the addressed checkpoint, which is not stored yet, will be refused."""


def judge_put(facts: PutFacts) -> Reason | None:
    """Why the put is refused; None if it is accepted."""
    if facts.head is not None and facts.child_place == "head":
        return None if facts.parent == facts.head_parent else "other parent"
    if facts.parent is None:
        return None if facts.head is None else "second root"
    return _continues(facts)


def _continues(facts: PutFacts) -> Reason | None:
    """Why a put under a parent does not continue the line."""
    if facts.head is None or facts.parent_place == "newer":
        return "orphan"
    if facts.parent_place == "older":
        return "fork"
    if facts.child_place == "older":
        return "backwards"
    if facts.foreign:
        return "foreign writes"
    return "unapplied writes" if facts.unapplied else None


def judge_writes(facts: WriteFacts) -> Reason | None:
    """Why the writes are refused; None if they are accepted."""
    if facts.head is None:
        return None
    if facts.place == "newer":
        return facts.coming
    if facts.place == "head":
        return "foreign writes" if facts.delta and facts.foreign else None
    if facts.delta or (facts.answer and not facts.own_child):
        return "fork"
    return "late write" if facts.strict and not facts.own_child else None
