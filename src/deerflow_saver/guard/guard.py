"""`Guard`: one wrapped saver's policy, fence and memory, and what it decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from deerflow_saver._arguments import is_mapping
from deerflow_saver._tally import tally
from deerflow_saver.errors import NonHeadWriteError, RefusedWriteError, WriteSlotTakenError
from deerflow_saver.events import GuardEvent
from deerflow_saver.guard.calls import Put, Target, Writes
from deerflow_saver.guard.fence import (
    Fence,
    FenceKind,
    Head,
    Look,
    Row,
    Seen,
    place_of,
)
from deerflow_saver.guard.policy import Policy, allowed, may_be_delta, without_plain
from deerflow_saver.guard.rule import PutFacts, Reason, WriteFacts, judge_put, judge_writes
from deerflow_saver.guard.runs import Refusal, Run
from deerflow_saver.guard.slots import lost_channels
from deerflow_saver.guard.state import GuardState, Known, Namespace, NamespaceKey

__all__ = ["Guard"]

Report = Callable[[GuardEvent], None]
RESUME = "__resume__"
"""The answer to an interrupt: what follows it are the writes of the tasks it resumes."""


class Guard:
    """The guard of one wrapped saver."""

    def __init__(
        self,
        saver: Any,
        fence: Fence,
        state: GuardState,
        report: Report,
        policy: Policy,
        *,
        strict: bool,
        scoped: bool,
    ) -> None:
        """Guard `saver` behind `fence`; `scoped` if it may choose rows by more than ids."""
        self.saver = saver
        self._fence = fence
        self.state = state
        self._report = report
        self._scoped = scoped
        self.policy: Policy = policy
        self.strict = strict

    @property
    def fence(self) -> FenceKind:
        """`"transaction"`: holds against every guarded writer; `"process"`: in this one only."""
        return self._fence.kind

    @property
    def bridged(self) -> bool:
        """Whether the saver's sync face hands over to its loop, where the fence is then."""
        return self.fence == "transaction" and hasattr(self.saver, "loop")

    @property
    def operations(self) -> Fence:
        """The fence, for those who drive a plan."""
        return self._fence

    # -- what is known ---------------------------------------------------------------------

    def namespace(self, target: Target) -> Namespace:
        """What is remembered of the call's namespace."""
        scope = target.scope() if self._scoped else ()
        return self.state.namespace(NamespaceKey((target.thread_id, target.checkpoint_ns, scope)))

    def must_look_before_put(self, namespace: Namespace, put: Put) -> bool:
        """Whether a put may concern delta channels, as far as is known without asking."""
        if self.policy == "refuse-all" or put.signal.delta or namespace.channels is None:
            return True
        return bool(namespace.channels) or namespace.vague or namespace.marked

    def must_look_before_writes(self, namespace: Namespace, writes: Writes) -> bool:
        """Whether writes may carry a delta channel, or the guard is strict about all."""
        if namespace.channels is None or namespace.vague:
            unnamed = any(may_be_delta(c) or c == RESUME for c in writes.channels)
            return unnamed or self.strict
        if namespace.written.isdisjoint(writes.channels):
            return (self.strict or RESUME in writes.channels) and bool(namespace.written)
        return True

    # -- foreseeing --------------------------------------------------------------------------

    def foresee(
        self, look: Look, namespace: Namespace, run: Run | None
    ) -> tuple[Seen, list[tuple[str, str]] | None] | None:
        """What the look will show unless somebody else writes, and `Forecast.rows`.

        None if the fence cannot make a write depend on it, or too little is known.
        """
        head = namespace.head
        if not self._fence.foresees or head is None or look.parent is None:
            return None
        place = place_of(look.parent, head.checkpoint_id)
        rows: list[tuple[str, str]] | None = None
        if look.rows and place == "head" and (look.child is not None or run is not None):
            known = namespace.known.get((run, look.parent))
            if known is None or not known.complete:
                return None
            rows = [row for row, count in known.rows.items() for _ in range(count)]
        stored: list[Row] = []
        for task_id, channel in rows or ():
            if task_id == look.task_id:
                return None  # whether the places are taken depends on what they hold
            stored.append(Row(task_id, 0, channel))
        newest = head.checkpoint_id
        expected = Head(newest, head.parent_id, head.signal, place, place_of(look.child, newest))
        return Seen(expected, stored, expected=True), rows

    # -- judging -----------------------------------------------------------------------------

    def refuse_behind(
        self, call: Put | Writes, namespace: Namespace, run: Run | None, *, again: bool = False
    ) -> None:
        """Refuse a call that builds on something refused, unless it is observed or allowed.

        `again` says that the call passed here before.

        Raises:
            RefusedWriteError: with the first reason.

        """
        target = call.target
        if self.policy == "observe" or (again and allowed(target.names)):
            return
        first: Refusal | None = None
        if self.state.refuses:
            first = self.state.refused(target.thread_id, call.builds_on())
        if first is None:
            first = namespace.refused_to(run)
        if first is None and run is not None and run.above:
            first = run.refused_above()
        if first is not None:
            self.decide(call, first._replace(behind=True), namespace, run)

    def judge_put(
        self, put: Put, namespace: Namespace, run: Run | None, seen: Seen
    ) -> tuple[Refusal | None, frozenset[str] | None]:
        """Why the put is refused, and the channels to stamp (None: a full namespace)."""
        head = seen.head
        base, vague, marked = put.signal.channels, put.signal.vague, put.signal.marked
        if head is not None:
            base = _union(base, head.signal.channels)
            vague, marked = vague or head.signal.vague, marked or head.signal.marked
            if not head.signal.marked:
                base = _union(base, namespace.channels or frozenset())
                vague = vague or namespace.vague
        left = without_plain(base, put.checkpoint.get("channel_values"))
        stamp = left if base or marked else None
        if not base and not vague and self.policy != "refuse-all":
            return None, stamp
        facts = PutFacts(
            head=head.checkpoint_id if head else None,
            head_parent=head.parent_id if head else None,
            parent=put.target.checkpoint_id,
            parent_place=head.parent_place if head else "newer",
            child=put.child,
            child_place=head.child_place if head else "newer",
            foreign=self._foreign(namespace, run, put.target, seen, base, vague=vague),
            unapplied=self._unapplied(namespace, run, put, seen),
        )
        reason = judge_put(facts)
        return (Refusal(reason, base, facts.head) if reason else None), stamp

    def judge_writes(
        self, writes: Writes, namespace: Namespace, run: Run | None, seen: Seen
    ) -> Refusal | None:
        """Why the writes are refused; also takes note of the namespace's channels."""
        head = seen.head
        if head is None:
            return None
        names = _union(namespace.written, head.signal.channels)
        vague = head.signal.vague or (namespace.vague and not head.signal.marked)
        if not names and not vague:
            namespace.saw((), vague=False)
            return None
        channels = writes.channels
        delta = frozenset([c for c in channels if c in names or (vague and may_be_delta(c))])
        target = writes.target
        facts = WriteFacts(
            head=head.checkpoint_id,
            place=head.parent_place,
            delta=bool(delta),
            foreign=self._foreign(namespace, run, target, seen, names, vague=vague),
            answer=RESUME in channels,
            strict=self.strict,
            own_child=head.parent_place == "older"
            and namespace.is_child_of(run, target.checkpoint_id),
            coming=_coming(namespace, run, head),
        )
        reason = judge_writes(facts)
        if reason is not None:
            return Refusal(reason, delta or names, facts.head, behind=facts.place == "newer")
        lost: tuple[str, ...] = ()
        if delta and facts.place == "head" and not seen.expected:
            lost = lost_channels(self.saver.serde, seen.rows, writes.task_id, writes.writes, delta)
        return Refusal("slot taken", lost, facts.head) if lost else None

    def _foreign(
        self,
        namespace: Namespace,
        run: Run | None,
        target: Target,
        seen: Seen,
        names: Iterable[str],
        *,
        vague: bool,
    ) -> bool:
        """Whether the addressed checkpoint has delta rows that `run` neither read nor wrote."""
        if seen.expected or not seen.rows or run is None or target.checkpoint_id is None:
            return False
        known = namespace.known.get((run, target.checkpoint_id))
        if known is None or not known.complete:
            return False
        stored = tally(
            [
                (row.task_id, row.channel)
                for row in seen.rows
                if row.channel in names or (vague and may_be_delta(row.channel))
            ]
        )
        return any(count > known.rows.get(row, 0) for row, count in stored.items())

    def _unapplied(self, namespace: Namespace, run: Run | None, put: Put, seen: Seen) -> bool:
        """Whether the put copies the head it read without the delta rows there.

        Readers of the copy would replay them all the same. LangGraph's own puts count
        every superstep and give a channel that was written a new version.
        """
        if not seen.rows or seen.head is None or run is None:
            return False
        known = namespace.known.get((run, seen.head.checkpoint_id))
        versions = put.checkpoint.get("channel_versions")
        if known is None or not known.versions or not is_mapping(versions):
            return False
        copied = put.signal.counted_as(seen.head.signal)
        return any(
            row.channel in copied
            and row.channel in versions
            and versions[row.channel] == known.versions.get(row.channel)
            for row in seen.rows
        )

    # -- deciding ----------------------------------------------------------------------------

    def decide(
        self, call: Put | Writes, refusal: Refusal, namespace: Namespace, run: Run | None
    ) -> None:
        """Refuse, unless the policy only watches or somebody allowed it.

        Raises:
            RefusedWriteError: the call is refused.

        """
        target = call.target
        note = allowed(target.names)
        outcome: Literal["refused", "observed", "allowed"] = "refused"
        if note is not None:
            outcome = "allowed"
        elif self.policy == "observe":
            outcome = "observed"
        operation = "put" if isinstance(call, Put) else "put_writes"
        channels = tuple(sorted(refusal.channels))
        self._report(
            GuardEvent(
                outcome, operation, refusal.reason, target.thread_id, target.checkpoint_ns,
                target.checkpoint_id, refusal.head_id, channels, note or "", refusal.behind,
            )
        )  # fmt: skip
        if outcome != "refused":
            return
        if isinstance(call, Put):
            self.state.refuse(target.thread_id, call.child, refusal)
        namespace.refuse_to(run, refusal)
        raise _error_of(refusal.reason)(
            thread_id=target.thread_id,
            checkpoint_ns=target.checkpoint_ns,
            checkpoint_id=target.checkpoint_id,
            head_id=refusal.head_id,
            operation=operation,
            channels=channels,
            reason=refusal.reason,
            behind=refusal.behind,
        )

    # -- taking note --------------------------------------------------------------------------

    def stored_put(
        self, put: Put, namespace: Namespace, run: Run | None, stamp: frozenset[str] | None
    ) -> None:
        """The put was stored."""
        parent = put.target.checkpoint_id
        signal = put.signal_with(stamp)
        namespace.head = Head(put.child, parent, signal, "head", "head")
        namespace.saw(stamp or (), vague=put.signal.vague)
        namespace.marked = namespace.marked or stamp is not None
        namespace.full_head = put.child if put.target.full and not put.signal.delta else None
        self.state.accept(put.target.thread_id, put.child)
        if parent is not None:
            namespace.children.keep(parent, run)
            namespace.known.discard((run, parent))
        namespace.known_to(run, put.child).complete = True

    def wrote(self, writes: Writes, namespace: Namespace, run: Run | None) -> None:
        """The writes may be stored, even if the call failed."""
        if writes.target.checkpoint_id is not None:
            known = namespace.known_to(run, writes.target.checkpoint_id)
            known.add([(writes.task_id, channel) for channel in writes.channels])

    def looked(self, writes: Writes, namespace: Namespace, run: Run | None, seen: Seen) -> None:
        """What was there when a run first wrote somewhere it had not read is not foreign."""
        if seen.head is None or seen.head.parent_place != "head":
            return
        if run is not None and writes.target.checkpoint_id is not None:
            known = namespace.known_to(run, writes.target.checkpoint_id)
            if not known.complete:
                known.add_all((row.task_id, row.channel) for row in seen.rows)

    def read(self, target: Target, row: Any) -> None:
        """A row was read."""
        namespace = self.namespace(target)
        run, renewed = self.state.reader(target.names, target.key, namespace)
        read = row.checkpoint["id"] if row is not None else target.checkpoint_id
        namespace.loaded(run, read, named=target.checkpoint_id is not None)
        if row is None:  # which tells nothing of what the first put will bring
            if target.checkpoint_id is None:
                namespace.read_head(None)
            return
        namespace.learn(row, latest=target.checkpoint_id is None)
        known: Known | None = namespace.known.get((run, row.checkpoint["id"]))
        if renewed or known is None or not known.complete:
            fresh = namespace.known_to(run, row.checkpoint["id"])
            fresh.add_all((task_id, channel) for task_id, channel, _ in row.pending_writes or ())
            if renewed:
                fresh.versions = dict(row.checkpoint.get("channel_versions") or {})


def _union(names: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    """All the names; the same object where there are no more."""
    return names if more <= names else names | more


def _coming(namespace: Namespace, run: Run | None, head: Head) -> Reason | None:
    """Why the put that `run` makes next will be refused, as far as what it goes on from tells.

    Its writes may overtake it: LangGraph saves from several threads, and none may run at once.
    """
    base = namespace.base_of(run)
    if head.parent_place != "newer" or base is None:
        return None
    parent, newest = base.checkpoint_id, head.checkpoint_id
    place = place_of(parent, newest)
    return judge_put(PutFacts(newest, head.parent_id, parent, place, "", "newer"))


def _error_of(reason: Reason) -> type[RefusedWriteError]:
    return WriteSlotTakenError if reason == "slot taken" else NonHeadWriteError
