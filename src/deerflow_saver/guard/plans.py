"""Plans of the guarded calls: fence, look, judge, then the plan that stores and learns.

They wrap the wrapper's own plans and send what those ask of the saver (`"inner"`) through
the fence, so a refusal happens before anything is begun there.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from deerflow_saver._arguments import argument
from deerflow_saver._plan import Plan
from deerflow_saver._tally import tally
from deerflow_saver.errors import CheckpointModeMismatchError, RefusedWriteError
from deerflow_saver.guard import full_mode
from deerflow_saver.guard.calls import Put, Target, Writes, put_of, target_of, writes_of
from deerflow_saver.guard.clock import observe
from deerflow_saver.guard.fence import Call, Forecast, Look, Seen, Session
from deerflow_saver.guard.guard import Guard
from deerflow_saver.guard.runs import RUNTIME, Refusal, Run
from deerflow_saver.guard.state import Namespace

__all__ = ["fenced", "forgetting", "guarded_put", "guarded_read", "guarded_writes"]

T = TypeVar("T")
W = TypeVar("W", Put, Writes)
Store = Callable[..., Plan[Any]]
"""The wrapper's own plan for `(args, kwargs)`; that of a `put` takes what was `witnessed`, too."""


def guarded_read(guard: Guard, args: Any, kwargs: Any, read: Plan[Any]) -> Plan[Any]:
    """`get_tuple`: wait for saves under way, and take note of what the caller now knows."""
    target = target_of(argument("config", 0, args, kwargs))
    if target is None:
        return (yield from read)
    loop = _get_running_loop()
    if guard.state.unsettled(target.key, loop):
        yield "settle", target.key
    if RUNTIME in target.names:
        guard.state.moves(target.key, loop)
    row = yield from read
    if target.full:
        yield from full_mode.vetted_read(target, guard.namespace(target), row)
    guard.read(target, row)
    if row is not None:
        observe(row.checkpoint["id"])
    return row


def guarded_put(guard: Guard, call: Call, store: Store) -> Plan[Any]:
    """`put`: store it if it continues the line."""
    return _under_way(guard, put_of(call), call, store, _put)


def guarded_writes(guard: Guard, call: Call, store: Store) -> Plan[Any]:
    """`put_writes`: store them unless they would be read by another branch, or be lost."""
    return _under_way(guard, writes_of(call), call, store, _writes)


def _heads_above(target: Target, run: Run | None) -> Plan[None]:
    """Read the heads once more below which the runs seem to have begun that `run` is part of.

    Somebody may have deleted what was known here as the head.
    """
    for (_, outer), (namespace, above) in run.above.items() if run is not None else ():
        if namespace.leaves_line(above) is not None:
            namespace.read_head((yield "get_tuple", target.head_config(outer)))


def _put(guard: Guard, put: Put, store: Store) -> Plan[Any]:
    namespace, run = guard.namespace(put.target), guard.state.run_of(put.target.names)
    yield from _heads_above(put.target, run)
    guard.refuse_behind(put, namespace, run)
    namespace.expect(put.signal.channels)
    if not put.target.full and not guard.must_look_before_put(namespace, put):
        namespace.strays(run)
        return (yield from store(*put.call[1:]))
    return (yield from _foreseen(_JudgedPut(guard, put, namespace, run), store))


def _writes(guard: Guard, writes: Writes, store: Store) -> Plan[Any]:
    namespace, run = guard.namespace(writes.target), guard.state.run_of(writes.target.names)
    yield from _heads_above(writes.target, run)
    guard.refuse_behind(writes, namespace, run)
    if not writes.target.full and not guard.must_look_before_writes(namespace, writes):
        guard.wrote(writes, namespace, run)  # it may be, from now on
        return (yield from store(*writes.call[1:]))
    return (yield from _foreseen(_JudgedWrites(guard, writes, namespace, run), store))


class _Judged(Generic[W]):
    """One call, judged by what is stored."""

    made: W

    def __init__(self, guard: Guard, made: W, namespace: Namespace, run: Run | None) -> None:
        self.guard, self.made, self.namespace, self.run = guard, made, namespace, run

    def look(self) -> Look:
        """What the call wants to know, made inside the fence."""
        raise NotImplementedError

    def judge(self, seen: Seen) -> Refusal | None:
        """Why the call is refused."""
        raise NotImplementedError

    def accepted(self, seen: Seen) -> Call:
        """The call to make, accepted by what was seen."""
        raise NotImplementedError

    def plan(self, store: Store, call: Call) -> Plan[Any]:
        """The wrapper's plan for the call that was accepted."""
        return store(*call[1:])

    def stored(self) -> None:
        """Take note of what was stored."""
        raise NotImplementedError

    def failed(self) -> None:
        """Take note of what may have been stored, by a call that failed."""

    def decide(self, seen: Seen) -> Call:
        """The call to make after a look; raises the refusal."""
        if self.made.target.full:
            full_mode.require_full(self.made.target, self.namespace, seen)
        refusal = self.judge(seen)
        if refusal is not None:
            # Writes that overtook a put are no end of the run: the put tells why it is refused
            run = None if refusal.behind else self.run
            self.guard.decide(self.made, refusal, self.namespace, run)
        return self.accepted(seen)

    def foreseen(self, look: Look) -> tuple[Call, Forecast] | None:
        """The call to make and the forecast it depends on, if that is accepted."""
        known = self.guard.foresee(look, self.namespace, self.run)
        if known is None or self.judge(known[0]) is not None:
            return None
        if self.made.target.full:
            full_mode.require_full(self.made.target, self.namespace, known[0])
        return self.accepted(known[0]), Forecast(look, *known, self.decide)


class _JudgedPut(_Judged[Put]):
    stamp: frozenset[str] | None = None
    """The channels to stamp into the metadata; None: a full namespace."""
    seen: Seen | None = None
    """What the call was accepted by, in the step that stores."""

    def look(self) -> Look:
        target = self.made.target
        return Look(
            target.config, target.names["thread_id"], target.checkpoint_ns, target.checkpoint_id,
            child=self.made.child, rows=not target.full, known=self.namespace.head,
        )  # fmt: skip

    def judge(self, seen: Seen) -> Refusal | None:
        refusal, self.stamp = self.guard.judge_put(self.made, self.namespace, self.run, seen)
        return refusal

    def accepted(self, seen: Seen) -> Call:
        self.seen = seen
        # Before it is stored: whoever reads it then knows a newer head than its run came from
        self.namespace.goes_on(self.run, self.made.child)
        return self.made.call if self.stamp is None else self.made.stamped(self.stamp)

    def plan(self, store: Store, call: Call) -> Plan[Any]:
        return store(*call[1:], witnessed=self.witnessed)

    def witnessed(self) -> dict[tuple[str, str], int] | None:
        """`(task id, channel)` of all writes the parent had when the put was stored, at most."""
        if self.seen is None or self.made.target.full:
            return None
        return tally([(row.task_id, row.channel) for row in self.seen.rows])

    def stored(self) -> None:
        self.guard.stored_put(self.made, self.namespace, self.run, self.stamp)

    def failed(self) -> None:
        self.namespace.strays(self.run)


class _JudgedWrites(_Judged[Writes]):
    def look(self) -> Look:
        target = self.made.target
        return Look(
            target.config, target.names["thread_id"], target.checkpoint_ns, target.checkpoint_id,
            rows=not target.full, task_id=self.made.task_id, known=self.namespace.head,
        )  # fmt: skip

    def judge(self, seen: Seen) -> Refusal | None:
        return self.guard.judge_writes(self.made, self.namespace, self.run, seen)

    def accepted(self, seen: Seen) -> Call:
        self.guard.looked(self.made, self.namespace, self.run, seen)
        return self.made.call

    def stored(self) -> None:
        self.guard.wrote(self.made, self.namespace, self.run)

    def failed(self) -> None:
        self.stored()


def _foreseen(judged: _Judged[Any], store: Store) -> Plan[Any]:
    """Store what is accepted; once more without a forecast, if a head has to be read."""
    target = judged.made.target

    def body(session: Session) -> Plan[Any]:
        return _stored(judged, session, store, foresee=foresee)

    foresee = True
    try:
        return (yield from fenced(target, body))
    except full_mode.Unvetted:
        foresee = False
        return (yield from fenced(target, body))


def _stored(judged: _Judged[Any], session: Session, store: Store, *, foresee: bool) -> Plan[Any]:
    """Decide by a forecast, and store if it holds; or look, decide and store."""
    made, namespace = judged.made, judged.namespace
    # Something may have been refused while this call waited
    judged.guard.refuse_behind(made, namespace, judged.run, again=True)
    try:
        look = judged.look()
        foreseen = judged.foreseen(look) if foresee else None
        if foreseen is not None:
            call, forecast = foreseen
        else:
            forecast, seen = None, (yield "look", (session, look))
            if made.target.full:
                yield from full_mode.vetting(made.target, namespace, session, seen)
            call = judged.decide(seen)
        answer = yield from _through(session, judged.plan(store, call), forecast)
    except (RefusedWriteError, CheckpointModeMismatchError, full_mode.Unvetted):
        raise
    except BaseException:
        judged.failed()
        raise
    judged.stored()
    return answer


def forgetting(guard: Guard, threads: list[Any] | None, plan: Plan[T]) -> Plan[T]:
    """A call that deletes rows of `threads` (None: of any): what is remembered goes too."""
    _forget(guard, threads)
    try:
        return (yield from plan)
    finally:
        _forget(guard, threads)


def _forget(guard: Guard, threads: list[Any] | None) -> None:
    if threads is None:
        guard.state.forget_all()
    for thread_id in threads or ():
        guard.state.forget_thread(str(thread_id))


def _under_way(
    guard: Guard,
    made: W | None,
    call: Call,
    store: Store,
    plan: Callable[[Guard, W, Store], Plan[Any]],
) -> Plan[Any]:
    """Run `plan` as a save that reads wait for; a call that is none goes to the saver as it is."""
    if made is None:
        return (yield from store(*call[1:]))
    key, loop = made.target.key, _get_running_loop() if call[0][0] == "a" else None
    flight = guard.state.take_off(key, loop)
    try:
        return (yield from plan(guard, made, store))
    finally:
        guard.state.land(key, flight)


def fenced(target: Target, body: Callable[[Session], Plan[T]]) -> Plan[T]:
    """Run `body` inside a session of the target's namespace."""
    session: Session = yield "enter", target.key
    try:
        answer = yield from body(session)
    except GeneratorExit:
        session.unlock()  # the driver is gone: nothing can be awaited any more
        raise
    except BaseException:
        yield "leave", session
        raise
    yield "leave", session
    return answer


def _through(session: Session, plan: Plan[Any], forecast: Forecast | None = None) -> Plan[Any]:
    """Run the wrapper's plan with its calls of the saver made inside the session."""
    try:
        operation, argument_ = next(plan)
        while True:
            if operation == "inner" and forecast is not None:
                operation, argument_ = "attempt", (session, argument_, forecast)
            elif operation == "inner":
                operation, argument_ = "store", (session, argument_)
            try:
                answer = yield operation, argument_
            except BaseException as error:  # noqa: BLE001 - the plan decides, as its caller would
                operation, argument_ = plan.throw(error)
            else:
                operation, argument_ = plan.send(answer)
    except StopIteration as stop:
        return stop.value
