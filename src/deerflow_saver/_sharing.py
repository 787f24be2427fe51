"""Between one saver's chains and the store that other workers use too.

`Sharing` speaks the store's bytes on one side and facts on the other.

What is published cannot become wrong, because the guard refuses, in the database's own
transaction, every delta write on a checkpoint that has a child. Where it does not (another
policy, a fence that ends with the process, an administrator's override), nothing is
published, and a delta write ends the thread's epoch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from deerflow_saver._core import Core
from deerflow_saver._identity import Identity, aidentity_of, identity_of
from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver._serde import name_of
from deerflow_saver._shared_rows import PathReader, fields_of
from deerflow_saver.cache.keys import thread_key
from deerflow_saver.cache.records import Codec
from deerflow_saver.cache.shared import Discard, Found, Look, Purge, SharedStore, Store
from deerflow_saver.history.chain import Fetched
from deerflow_saver.history.sharing import Asked, Forget, Publish, Told
from deerflow_saver.walks.asking import on_own_loop

__all__ = ["Home", "Sharing"]

logger = logging.getLogger("deerflow_saver")

_AGAIN_SECONDS = 30.0
"""How long a database that did not tell who it is is not asked again, except to forget."""


class Home:
    """What a wrapper and its clones know about their database's place in the store."""

    def __init__(self, prefix: str | None) -> None:
        """`prefix` if the user named the database."""
        self.identity = None if prefix is None else Identity(prefix, b"")
        self.asked_again = 0.0
        """When (`time.monotonic`) a database that did not tell who it is may be asked again."""
        self.owes = False
        """Whether something was to be forgotten before the database had told who it is."""


class Sharing:
    """One wrapped saver's dealings with a shared store."""

    def __init__(
        self,
        core: Core,
        store: SharedStore,
        home: Home,
        *,
        fenced: bool,
        overridden: Callable[[Mapping[str, Any]], bool],
        may_be_delta: Callable[[str], bool],
    ) -> None:
        """What the guard knows: see below, and `judged`."""
        self._core = core
        self._store = store
        self._home = home
        self._lock = threading.Lock()
        self._codec: tuple[Identity, str, Codec] | None = None
        self.fenced = core.storage and fenced
        """Whether the guard keeps every worker from writing on what has children."""
        self._overridden = overridden
        self.may_be_delta = may_be_delta
        """Whether a channel could be a delta channel, as far as its name tells."""

    def judged(self, names: Mapping[str, Any]) -> bool:
        """Whether the guard judges a call with this `configurable`, and nobody overrides it."""
        return self.fenced and not self._overridden(names)

    # -- both faces --------------------------------------------------------------------------

    def call(self, request: Any) -> Any:
        """Carry out `Asked`, `Publish` or `Forget`; None in an outage."""
        if self._home.identity is None and on_own_loop(self._core.inner):
            # The saver cannot be asked from here
            self._home.owes = self._home.owes or isinstance(request, Forget)
            return None
        calls: Mapping[str, Callable[[Any], Any]] = {
            "identity": lambda _: identity_of(self._core.inner),
            "store": self._store.run,
        }
        return drive(self._perform(request), calls)

    async def acall(self, request: Any) -> Any:
        """`call` on the async face."""
        calls: Mapping[str, Callable[[Any], Any]] = {
            "identity": lambda _: aidentity_of(self._core.inner),
            "store": self._store.arun,
        }
        return await adrive(self._perform(request), calls)

    def _perform(self, request: Any) -> Plan[Any]:
        try:
            identity = yield from self._identity(urgent=isinstance(request, Forget))
            if identity is None:
                return None
            if self._home.owes:
                self._home.owes = False
                self._store.owe(Purge(identity.prefix, None))
            if isinstance(request, Forget):
                return (yield "store", Purge(identity.prefix, request.thread_id))
            codec = self._codec_of(identity)
            if isinstance(request, Publish):
                return codec and (yield "store", self._packed(codec, identity.prefix, request))
            if codec is None:  # what others forget counts all the same
                found = yield "store", Look(identity.prefix, request.place.thread_id)
                return found and Told(found.epoch, {})
            return (yield from self._told(codec, identity.prefix, request))
        except Exception:  # noqa: BLE001 - what fails here is ours
            self._core.shared.failed()
            return None

    def _identity(self, *, urgent: bool) -> Plan[Identity | None]:
        """Who the database is: asked until it tells, now and then or for what is `urgent`."""
        home = self._home
        if home.identity is not None:
            return home.identity
        if not urgent and time.monotonic() < home.asked_again:
            return None
        try:
            found = yield "identity", None
        except BaseException as error:
            home.owes = home.owes or urgent
            if not isinstance(error, Exception):
                raise
            if not home.asked_again:
                logger.warning(
                    "the database did not tell who it is, so its histories are not shared for "
                    "now: if that goes on, give the wrappers of this database a key_prefix of "
                    "its own",
                    exc_info=True,
                )
            home.asked_again = time.monotonic() + _AGAIN_SECONDS
            return None
        home.identity = home.identity or found
        return home.identity

    def _codec_of(self, identity: Identity) -> Codec | None:
        """The codec for the saver's present serialiser; None where nothing can be shared."""
        core = self._core
        if not core.storage:
            return None
        name = name_of(core.inner.serde)
        if name is None:
            return None
        with self._lock:
            if self._codec is None or self._codec[:2] != (identity, name):
                traits = core.traits
                order = (traits.ordered, traits.by_task, traits.plain_seeds, core.walker.paths)
                how = f"{name} {traits.seeds_by_version} {[bool(part) for part in order]}"
                secret = self._store.secret or identity.secret
                self._codec = (identity, name, Codec(identity.prefix, how, secret))
            return self._codec[2]

    # -- bytes -------------------------------------------------------------------------------

    def _packed(self, codec: Codec, prefix: str, request: Publish) -> Store:
        place = request.place
        key = thread_key(prefix, place.thread_id)
        serde = self._core.inner.serde
        fields, over = fields_of(request.news, codec, key, place.checkpoint_ns, serde)
        return Store(prefix, place.thread_id, request.epoch, fields, over)

    def _told(self, codec: Codec, prefix: str, asked: Asked) -> Plan[Told | None]:
        place = asked.place
        thread, ns = place.thread_id, place.checkpoint_ns
        look = Look(prefix, thread, ns, asked.checkpoint_id, asked.channels, asked.anchors)
        found: Found | None = yield "store", look
        if found is None:
            return None
        key = thread_key(prefix, thread)
        serdes = self._core.inner.serde, self._core.decoding()[1]
        rows: dict[str, Mapping[str, Fetched]] = {}
        unreadable: list[str] = []
        for channel, path, seed in zip(asked.channels, found.paths, found.seeds, strict=False):
            reader = PathReader(codec, key, ns, channel, serdes)
            rows[channel] = reader.read(asked.checkpoint_id, path, seed, asked.anchors)
            unreadable += reader.unreadable
        if unreadable:
            yield "store", Discard(prefix, thread, unreadable)
        return Told(found.epoch, rows)
