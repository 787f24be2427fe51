"""Plans that go round those of the wrapper's methods: publish what is final, end what is not.

They go round the guard as well, so that what they publish is committed, and what they say
is forgotten has been deleted.
"""

from __future__ import annotations

import contextlib
from typing import Any

from deerflow_saver._arguments import PUT, PUT_WRITES, arguments, configurable
from deerflow_saver._core import Core
from deerflow_saver._plan import Plan
from deerflow_saver._writes import delta_channels
from deerflow_saver.history.chain import Chain
from deerflow_saver.history.facts import ChainBusy
from deerflow_saver.history.sharing import Asked, Forget, News, Publish, Told

__all__ = ["sharing_forgets", "sharing_put", "sharing_writes"]


def sharing_put(core: Core, args: Any, kwargs: Any, plan: Plan[Any]) -> Plan[Any]:
    """A `put`: after it is committed, publish what it made final."""
    sharing = core.sharing
    config, checkpoint, metadata, _ = arguments(PUT, args, kwargs)
    key = core.key(config)
    if key is None or not sharing.judged(configurable(config)):
        return (yield from _ending(config, plan))
    delta = delta_channels(checkpoint, metadata)
    if not delta or not core.shared.cache.enabled:
        return (yield from plan)
    core.shared.track(delta)
    chain = core.chain(key)
    # Before anything is stored: a purge from now on ends this epoch
    epoch = yield from _bound(chain, key)
    news = None
    try:
        stored = yield from plan
    finally:
        with contextlib.suppress(ChainBusy), chain.lock:
            news = chain.outbox.pop(checkpoint["id"], None)
    if epoch is not None:
        yield from _publish(chain, key, epoch, news)
    return stored


def _publish(chain: Chain, place: Any, epoch: str, news: News | None) -> Plan[None]:
    """Tell what a `put` made final."""
    if news is None:
        # Nothing is known of it: an id that was put before, perhaps, and with other contents
        yield "shared", Forget(place.thread_id)
        return
    kept = yield "shared", Publish(place, epoch, news)
    if kept is False:  # the epoch has ended
        with contextlib.suppress(ChainBusy), chain.lock:
            chain.bind(None)


def _bound(chain: Chain, place: Any) -> Plan[str | None]:
    """The chain's epoch, asked for if there is none; None if there is none to be had."""
    if chain.epoch is not None:
        return chain.epoch
    told: Told | None = yield "shared", Asked(place)
    if told is None:
        return None
    with contextlib.suppress(ChainBusy), chain.lock:
        chain.bind(told.epoch)
    return chain.epoch


def sharing_writes(core: Core, args: Any, kwargs: Any, plan: Plan[Any]) -> Plan[Any]:
    """A `put_writes`: one that no guard judged may change what others take for final."""
    sharing = core.sharing
    config, writes, *_ = arguments(PUT_WRITES, args, kwargs)
    names = {write[0] for write in writes or ()}
    key = core.key(config)
    if key is None or not sharing.judged(configurable(config)):
        may_matter = any(map(sharing.may_be_delta, names))
        return (yield from (_ending(config, plan) if may_matter else plan))
    if core.shared.cache.enabled and not names.isdisjoint(core.shared.since):
        # A new checkpoint's writes may come before it: they are recorded in its epoch
        yield from _bound(core.chain(key), key)
    return (yield from plan)


def _ending(config: Any, plan: Plan[Any]) -> Plan[Any]:
    """Run `plan`, then end the epoch of the thread it wrote to, whatever became of it."""
    thread_id = configurable(config).get("thread_id")
    return sharing_forgets([] if thread_id is None else [thread_id], plan, before=False)


def sharing_forgets(
    threads: list[Any] | None, plan: Plan[Any], *, before: bool = True
) -> Plan[Any]:
    """Run a plan that deletes or rewrites rows of `threads` (None: of any); their epochs end."""
    ends = [Forget(None)] if threads is None else [Forget(str(name)) for name in threads]
    if before:
        for end in ends:
            yield "shared", end
    try:
        done = yield from plan
    except GeneratorExit:
        raise  # the driver is gone: nothing can be awaited any more
    except BaseException:
        for end in ends:
            yield "shared", end
        raise
    for end in ends:
        yield "shared", end
    return done
