"""Reading a delta history: from the chain, by catching up with a few rows, or by one walk.

The plan is a generator of storage requests (see `deerflow_saver._plan`), so it is the same
for both faces of a saver:

=============  ==================================  =========================================
request        argument                            answer
=============  ==================================  =========================================
`get_tuple`    config                              the wrapped saver's tuple, or None
`history`      channels                            the wrapped saver's own history
`rooted`       `Reading.place`                     whether no parent row is missing below it
`wait`         `Flight`                            nothing, once another reader is done
`shared`       `Asked`                             what other processes know (`Told`), or None
=============  ==================================  =========================================
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver._arguments import is_mapping
from deerflow_saver._plan import Plan
from deerflow_saver.history.chain import Chain, Fetched, Need
from deerflow_saver.history.facts import ChainBusy
from deerflow_saver.history.isolation import Unkeepable
from deerflow_saver.history.segment import Position, View
from deerflow_saver.history.sharing import Asked, Told

__all__ = [
    "COUNTERS", "Flight", "Flights", "History", "Reading", "Result", "depths_of",
    "read",
]  # fmt: skip

COUNTERS = "counters_since_delta_snapshot"
"""LangGraph's metadata key: per delta channel `(updates, supersteps)` since its last snapshot."""

History = dict[str, dict[str, Any]]
"""Per channel LangGraph's `DeltaChannelHistory`: `writes` and, where one is stored, `seed`."""

Shared = Mapping[str, Mapping[str, Fetched]]
"""Per channel and checkpoint what another process shared."""

_DEPTH_PER_FETCH = 20
"""One `get_tuple` costs about as much as walking this many checkpoints (async Postgres)."""
_MAX_FETCHES = 16
_NONE: frozenset[str] = frozenset()
_BOUND = int(os.environ.get("LANGGRAPH_DELTA_MAX_SUPERSTEPS_SINCE_SNAPSHOT", "5000"))
"""LangGraph's `DELTA_MAX_SUPERSTEPS_SINCE_SNAPSHOT`: after so many, a channel is snapshot."""
_DEEP = 64
"""From this depth on a proof of rootedness costs little beside the walk itself."""


class Flight:
    """One reader's miss, on which others wait."""

    landed: Future[None] | None = None
    """Made for the first that waits."""


class Flights:
    """The misses under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Any, Flight] = {}

    def board(self, key: Any) -> tuple[Flight, bool]:
        """The flight of `key`, and whether the caller is its pilot."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                flight.landed = flight.landed or Future()
                return flight, False
            flight = self._flights[key] = Flight()
            return flight, True

    def land(self, key: Any, flight: Flight) -> None:
        """End a flight, whatever became of it, and let the others go on."""
        with self._lock:
            del self._flights[key]
        if flight.landed is not None and not flight.landed.done():
            flight.landed.set_result(None)


@dataclass(slots=True)
class Reading:
    """What is asked, and how this saver may be asked."""

    place: Any
    """The thread and namespace, as the drivers know it."""
    checkpoint_id: str
    channels: tuple[str, ...]
    token: Any
    """Names the way of decoding: histories of different tokens are never mixed."""
    make_view: Callable[[], View]
    config_of: Callable[[str], Any]
    """A config that addresses a checkpoint of the same thread and namespace."""
    on_error: Callable[[], None]
    """Called when the cache itself failed, inside an exception handler."""
    kind: Literal["storage", "tuples", "opaque"]
    """See `Traits`: rows are read one by one where cheaper than a walk, always, or never."""
    provable: bool
    """Whether rootedness can be proven at all."""
    proof_is_cheap: bool
    """Whether proving it is cheap beside the shallowest walk."""
    flight_key: Any
    plain_seeds: bool = True
    """See `Traits`: whether a value that is no snapshot may be composed upon."""
    shares: bool = False
    """Whether a shared store is to be asked: for the epoch at each read, for rows at a miss."""
    by_task: bool = False
    """Whether a row's own writes count in the order of task ids, however `get_tuple` gives them."""


@dataclass(slots=True)
class Result:
    """An answer and how it came about."""

    history: History
    outcome: Literal["hit", "composed", "walk", "bypass"]
    fetches: int
    missing: bool = False
    """Whether a row on the line is known not to be there: what found no seed ended at it."""
    overdue: frozenset[str] = frozenset()
    """Channels for which the walk passed LangGraph's bound, as far as that is known."""
    shared: bool = False
    """Whether rows that another process shared took part."""


def depths_of(metadata: Mapping[str, Any]) -> tuple[int | None, frozenset[str]]:
    """Supersteps since a snapshot, and the channels that are overdue.

    The first is that of the channel that waits longest, None if it is not told. Overdue is what
    went without one for longer than LangGraph means to let it, which does not count what
    `update_state` did before 1.2.9. From `counters_since_delta_snapshot`, LangGraph's
    `{channel: (updates, supersteps)}`.
    """
    counters = metadata.get(COUNTERS)
    if not is_mapping(counters):
        return None, _NONE
    try:
        depths = {name: int(pair[1]) for name, pair in counters.items()}
    except (TypeError, ValueError, IndexError):
        return None, _NONE
    depth = max(depths.values(), default=0)
    if depth <= _BOUND:
        return depth, _NONE  # one for all checkpoints: it is kept with each
    return depth, frozenset(name for name, passed in depths.items() if passed > _BOUND)


def always_delta(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Channels that were delta, without a snapshot, in every superstep of the thread.

    Steps begin at -1 (LangGraph's `CheckpointMetadata`), so a checkpoint of step n ends n + 2
    supersteps at most; a channel that turned delta later has counted fewer.
    """
    counters, step = metadata.get(COUNTERS), metadata.get("step")
    if not isinstance(counters, Mapping) or not isinstance(step, int):
        return frozenset()
    try:
        return frozenset(name for name, pair in counters.items() if int(pair[1]) >= step + 2)
    except (TypeError, ValueError, IndexError):
        return frozenset()


def read(chain_of: Callable[[], Chain], reading: Reading, flights: Flights) -> Plan[Result]:
    """Answer `reading`, exactly as the wrapped saver would."""
    waited = False
    while True:
        chain = chain_of()
        if chain.collects and gc.isenabled():
            gc.collect(0)
        try:
            with chain.lock:
                if not chain.trusted:
                    break
                chain.settle()
                chain.ask(reading.channels)
                answer = _answer(chain, reading, {})
                lessons, generation = chain.lessons, chain.generation
            if isinstance(answer, dict):
                if (yield from _current(chain, reading, generation)):
                    return Result(answer, "hit", 0)
                continue
        except ChainBusy:
            break
        flight, pilot = (None, True) if waited else flights.board(reading.flight_key)
        if pilot:
            try:
                return (yield from _miss(chain, reading, answer, lessons))
            except ChainBusy:
                break
            finally:
                if flight is not None:
                    flights.land(reading.flight_key, flight)
        yield "wait", flight
        waited = True
    history = yield "history", reading.channels
    return Result(dict(history), "walk", 0)


def _current(chain: Chain, reading: Reading, generation: int) -> Plan[bool]:
    """Whether an answer of that generation is of the thread's present epoch.

    An outage does not tell, and this process's knowledge counts then.
    """
    told: Told | None = (yield "shared", Asked(reading.place)) if reading.shares else None
    if told is None:
        return True
    with chain.lock:
        chain.bind(told.epoch)
        return chain.generation == generation


def _shared(chain: Chain, reading: Reading) -> Plan[Shared | None]:
    """What others know of the way down; None in an outage, after which nothing has changed."""
    with chain.lock:
        view = chain.view(reading.token, reading.make_view)
        anchors = chain.anchors(view, reading.channels)
    asked = Asked(reading.place, reading.checkpoint_id, reading.channels, anchors)
    told: Told | None = yield "shared", asked
    if told is None:
        return None
    with chain.lock:
        chain.bind(told.epoch)
    return told.rows


def _answer(
    chain: Chain,
    reading: Reading,
    fetched: Mapping[str, Fetched],
    shared: Shared | None = None,
) -> History | list[Need]:
    """The histories, or the rows they still need (none if the cache failed)."""
    try:
        answer = _compose(chain, reading, fetched, shared or {})
        return _take(chain, reading, answer) if isinstance(answer, dict) else answer
    except Exception:  # noqa: BLE001 - a failing cache ends in the wrapped saver's answer
        chain.clear()
        reading.on_error()
        return []


def _compose(
    chain: Chain, reading: Reading, fetched: Mapping[str, Fetched], shared: Shared
) -> dict[str, Position] | list[Need]:
    """Every channel's position, or all rows that some channel still needs."""
    view = chain.view(reading.token, reading.make_view)
    found: dict[str, Position] = {}
    needs: dict[Need, None] = {}
    for channel in reading.channels:
        known = {**shared[channel], **fetched} if channel in shared else fetched
        answer = chain.compose(view, reading.checkpoint_id, channel, known)
        if isinstance(answer, Position):
            found[channel] = answer
        else:
            needs.update(dict.fromkeys(answer))
    return list(needs) if needs else found


def _take(chain: Chain, reading: Reading, positions: Mapping[str, Position]) -> History:
    view = chain.view(reading.token, reading.make_view)
    out: History = {}
    held = False
    for channel, (segment, length) in positions.items():
        entry: dict[str, Any] = {"writes": segment.take(length)}
        if segment.seed is not None:
            entry["seed"] = segment.seed.take()
        view.use(segment)
        held = held or segment.held
        out[channel] = entry
    chain.noticed(held=held)
    return out


def _miss(
    chain: Chain, reading: Reading, answer: History | list[Need], lessons: int
) -> Plan[Result]:
    shared = (yield from _shared(chain, reading)) if reading.shares else None
    with chain.lock:
        generation = chain.generation
        # Others have told, or another reader has learnt something meanwhile
        if shared is not None or chain.lessons != lessons:
            answer = _answer(chain, reading, {}, shared) if chain.trusted else []
        if isinstance(answer, dict):
            return Result(answer, "hit", 0, shared=bool(shared))
        allowance = _allowance(chain, reading, answer)
    fetched: dict[str, Fetched] = {}
    missing = False
    if allowance:
        found = yield from _crawl(
            chain, reading, generation, fetched, answer, allowance, shared or {}
        )
        if isinstance(found, dict):
            return Result(found, "composed", len(fetched), shared=bool(shared))
        missing = found == "row missing"
        if reading.kind == "tuples":  # a row is missing: an answer, but no knowledge
            generation = -1
    return (yield from _walk(chain, reading, generation, len(fetched), missing=missing))


def _allowance(chain: Chain, reading: Reading, needs: list[Need]) -> int:
    """How many rows may be read to catch up before a walk is the cheaper way."""
    if reading.kind == "tuples":
        return 1 << 30
    if reading.kind == "opaque" or not needs:
        return 0
    allowance = min((chain.depth(reading.checkpoint_id) or 0) // _DEPTH_PER_FETCH, _MAX_FETCHES)
    expected = len(needs)
    if any(not need.known for need in needs):
        gap = chain.gap(reading.checkpoint_id)
        expected = allowance + 1 if gap is None else max(expected, gap)
    return allowance if expected <= allowance else 0


def _crawl(
    chain: Chain,
    reading: Reading,
    generation: int,
    fetched: dict[str, Fetched],
    needs: list[Need],
    allowance: int,
    shared: Shared,
) -> Plan[History | Literal["given up", "row missing"]]:
    """Read the rows that are not known until the histories compose, or why they do not."""
    configs: dict[str, Any] = {}
    while needs:
        for need in needs:
            cid = need.checkpoint_id
            if cid in fetched or len(fetched) >= allowance:
                return "given up"
            row = yield "get_tuple", configs.get(cid) or reading.config_of(cid)
            if row is None:
                return "row missing"
            fetched[cid] = found = _fetched(row, reading)
            if found.parent is not None:
                configs[found.parent] = row.parent_config
        with chain.lock:
            if not chain.trusted or chain.generation != generation:
                return "given up"
            further = _further(chain, reading, needs, fetched)
            if further is not None:
                needs = [further]
                continue
            answer = _answer(chain, reading, fetched, shared)
        if isinstance(answer, dict):
            return answer
        needs = answer
    return "given up"


def _further(
    chain: Chain, reading: Reading, needs: list[Need], fetched: Mapping[str, Fetched]
) -> Need | None:
    """The parent to read next, where trying to compose before that would be in vain."""
    if len(needs) != 1:
        return None
    cid = needs[0].checkpoint_id
    parent = fetched[cid].parent
    if parent is None or chain.knows(cid) or chain.knows(parent):
        return None
    stored = fetched[cid].values.keys()
    return Need(parent, known=False) if stored.isdisjoint(reading.channels) else None


def _fetched(row: Any, reading: Reading) -> Fetched:
    parent = (row.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    own = [tuple(write) for write in row.pending_writes or ()]
    if reading.by_task:
        own.sort(key=itemgetter(0))  # stable: a task's own writes come as it made them
    versions = row.checkpoint.get("channel_versions") or {}
    values = row.checkpoint.get("channel_values") or {}

    def seed(name: str, value: Any) -> Any:
        # Savers differ in whether a value without a version is a seed: left to them, as None is
        sure = name in versions and (reading.plain_seeds or isinstance(value, _DeltaSnapshot))
        return value if sure else None

    return Fetched(parent, {name: seed(name, value) for name, value in values.items()}, own)


def _walk(
    chain: Chain, reading: Reading, generation: int, fetches: int, *, missing: bool
) -> Plan[Result]:
    """Ask the wrapped saver, and keep what can be kept.

    A history without a seed is kept only if no parent row is missing in the thread,
    which must be proven before the walk: a row that is absent may come back.
    """
    with chain.lock:
        overdue = chain.overdue(reading.checkpoint_id)
        prove = reading.provable and chain.generation == generation
        if chain.seedless_walks == 0:
            deep = (chain.depth(reading.checkpoint_id) or 0) >= _DEEP
            prove = prove and (reading.proof_is_cheap or deep)
            prove = prove and not chain.surely_seeded(reading.checkpoint_id)
    rooted = (yield "rooted", reading.place) if prove else False
    history = yield "history", reading.channels
    with chain.lock:
        if chain.trusted and chain.generation == generation:
            try:
                _keep_all(chain, reading, history, rooted=rooted)
            except Exception:  # noqa: BLE001 - it was read: whatever fails here is ours
                chain.clear()
                reading.on_error()
    return Result(dict(history), "walk", fetches, missing, overdue)


def _keep_all(chain: Chain, reading: Reading, history: Mapping[str, Any], *, rooted: bool) -> None:
    view = chain.view(reading.token, reading.make_view)
    cid = reading.checkpoint_id
    for channel in reading.channels:
        if chain.find(view, cid, channel) is None:
            _keep(chain, view, cid, channel, history[channel], rooted=rooted)


def _keep(
    chain: Chain,
    view: View,
    checkpoint_id: str,
    channel: str,
    entry: Mapping[str, Any],
    *,
    rooted: bool,
) -> None:
    writes = entry["writes"]
    if "seed" not in entry:
        chain.seedless_walks += 1
        if not rooted or not (writes or chain.knows(checkpoint_id)):
            return
    if type(writes) is not list or not all(type(w) is tuple and len(w) == 3 for w in writes):  # noqa: PLR2004
        return
    try:
        segment = view.seeded(entry["seed"]) if "seed" in entry else view.segment()
        segment.adopt(writes)
    except Unkeepable:
        return
    chain.remember(view, checkpoint_id, channel, Position(segment, segment.length))
