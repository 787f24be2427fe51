"""Plans of the guarded calls: fence, look, judge, then the plan that stores and learns.

They wrap the wrapper's own plans and send what those ask of the saver (`"inner"`) through
the fence, so a refusal happens before anything is begun there.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable
from typing import Any, TypeVar

from deerflow_saver._arguments import argument
from deerflow_saver._plan import Plan
from deerflow_saver.errors import CheckpointModeMismatchError, RefusedWriteError
from deerflow_saver.guard import full_mode
from deerflow_saver.guard.calls import Put, Target, Writes, put_of, target_of, writes_of
from deerflow_saver.guard.clock import observe
from deerflow_saver.guard.fence import Call, Forecast, Look, Seen, Session
from deerflow_saver.guard.guard import Guard
from deerflow_saver.guard.state import Namespace, Refusal, Run

__all__ = ["forgetting", "guarded_put", "guarded_read", "guarded_writes"]

T = TypeVar("T")
W = TypeVar("W", Put, Writes)
Store = Callable[[Any, Any], Plan[Any]]
"""The wrapper's own plan for `(args, kwargs)`."""
Foresee = Callable[..., Forecast | None]
"""`Guard.foresee`, or what foresees nothing."""


def guarded_read(guard: Guard, args: Any, kwargs: Any, read: Plan[Any]) -> Plan[Any]:
    """`get_tuple`: wait for saves under way, and take note of what the caller now knows."""
    target = target_of(argument("config", 0, args, kwargs))
    if target is None:
        return (yield from read)
    if guard.state.unsettled(target.key):
        yield "settle", target.key
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


def _put(guard: Guard, put: Put, store: Store) -> Plan[Any]:
    namespace, run = guard.namespace(put.target), guard.state.run_of(put.target.names)
    guard.refuse_behind(put, namespace, run)
    namespace.expect(put.signal.channels)
    if not put.target.full and not guard.must_look_before_put(namespace, put):
        return (yield from store(*put.call[1:]))

    def body(session: Session, foresee: Foresee) -> Plan[Any]:
        return _judged_put(guard, put, namespace, run, session, store, foresee)

    return (yield from _foreseen(guard, put.target, body))


def _judged_put(
    guard: Guard,
    put: Put,
    namespace: Namespace,
    run: Run | None,
    session: Session,
    store: Store,
    foresee: Foresee,
) -> Plan[Any]:
    target = put.target
    known = run is not None and (run, target.checkpoint_id) in namespace.known
    look = Look(
        target.config, target.names["thread_id"], target.checkpoint_ns, target.checkpoint_id,
        child=put.child, rows=known and not target.full,
    )  # fmt: skip
    stamp: frozenset[str] | None = None

    def judge(seen: Seen) -> Refusal | None:
        nonlocal stamp
        refusal, stamp = guard.judge_put(put, namespace, run, seen)
        return refusal

    def decide(seen: Seen) -> Call:
        full_mode.require_full(target, namespace, seen)
        refusal = judge(seen)
        if refusal is not None:
            guard.decide(put, refusal, namespace, run)
        return put.call if stamp is None else put.stamped(stamp)

    # Something may have been refused while this call waited
    guard.refuse_behind(put, namespace, run, again=True)
    forecast = foresee(look, namespace, run, judge, decide)
    vet = full_mode.vetting(target, namespace, session)
    stored = yield from _decided(session, look, forecast, vet, decide, store)
    guard.stored_put(put, namespace, run, stamp)
    return stored


def _decided(
    session: Session,
    look: Look,
    forecast: Forecast | None,
    vet: Callable[[Seen], Plan[None]],
    decide: Callable[[Seen], Call],
    store: Store,
) -> Plan[Any]:
    """Look, decide and store; or decide by a forecast, and store if it holds."""
    if forecast is None:
        seen = yield "look", (session, look)
        yield from vet(seen)
    else:
        seen = forecast.foreseen
    return (yield from _through(session, store(*decide(seen)[1:]), forecast))


def guarded_writes(guard: Guard, call: Call, store: Store) -> Plan[Any]:
    """`put_writes`: store them unless they would be read by another branch, or be lost."""
    return _under_way(guard, writes_of(call), call, store, _writes)


def _writes(guard: Guard, writes: Writes, store: Store) -> Plan[Any]:
    namespace, run = guard.namespace(writes.target), guard.state.run_of(writes.target.names)
    guard.refuse_behind(writes, namespace, run)
    if not writes.target.full and not guard.must_look_before_writes(namespace, writes):
        guard.wrote(writes, namespace, run)  # it may be, from now on
        return (yield from store(*writes.call[1:]))

    def body(session: Session, foresee: Foresee) -> Plan[Any]:
        return _judged_writes(guard, writes, namespace, run, session, store, foresee)

    return (yield from _foreseen(guard, writes.target, body))


def _judged_writes(
    guard: Guard,
    writes: Writes,
    namespace: Namespace,
    run: Run | None,
    session: Session,
    store: Store,
    foresee: Foresee,
) -> Plan[Any]:
    target = writes.target
    look = Look(
        target.config, target.names["thread_id"], target.checkpoint_ns, target.checkpoint_id,
        rows=not target.full, task_id=writes.task_id,
    )  # fmt: skip

    def judge(seen: Seen) -> Refusal | None:
        return guard.judge_writes(writes, namespace, run, seen)

    def decide(seen: Seen) -> Call:
        full_mode.require_full(target, namespace, seen)
        refusal = judge(seen)
        if refusal is not None:
            guard.decide(writes, refusal, namespace, run)
        guard.looked(writes, namespace, run, seen)
        return writes.call

    guard.refuse_behind(writes, namespace, run, again=True)
    forecast = foresee(look, namespace, run, judge, decide)
    vet = full_mode.vetting(target, namespace, session)
    try:
        stored = yield from _decided(session, look, forecast, vet, decide, store)
    except (RefusedWriteError, CheckpointModeMismatchError):
        raise
    except BaseException:  # it may have been stored all the same
        guard.wrote(writes, namespace, run)
        raise
    guard.wrote(writes, namespace, run)
    return stored


def _foreseen(guard: Guard, target: Target, body: Callable[[Session, Foresee], Plan[T]]) -> Plan[T]:
    """Run `body` inside a session; once more without a forecast, if a head has to be read."""
    try:
        return (yield from _fenced(target, lambda session: body(session, guard.foresee)))
    except full_mode.Unvetted:
        return (yield from _fenced(target, lambda session: body(session, lambda *_: None)))


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


def _fenced(target: Target, body: Callable[[Session], Plan[T]]) -> Plan[T]:
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
