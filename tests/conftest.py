"""Fixtures of the whole suite: real servers, and fresh databases on them.

With `-n` the controller starts the servers and tells the workers where they are, so one
Postgres and one Redis serve the run however many workers it has.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from deerflow_saver import fixes
from deerflow_saver.channel_mode import thawed
from deerflow_saver.fixes import DEFECTS, Patch
from support.databases import drop_kept, empty_redis, fresh_postgres, numbered_redis
from support.folders import keep_files_in_memory
from support.savers import Storage
from support.servers import Servers
from support.upstream import reloads_what_ran

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SERVERS = pytest.StashKey[Servers]()

keep_files_in_memory()

# No run reports to a tracing service, whatever the developer's shell says.
os.environ["LANGSMITH_TRACING"] = "false"

# A shared machine makes single examples slow: that is no failure.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


ANSWERED = {
    "differential", "doctor", "fixes", "staging", "walks", "test_docs.py", "test_parity.py",
}  # fmt: skip
"""Tests that know what the wrapper answers rightly where a saver answers wrongly."""

ENDING = {"saves-wait-for-ever"}
"""Fixes without which a run may wait for ever; they change no answer."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SERVERS] = Servers()
    if not hasattr(config, "workerinput"):
        # Ended by a timeout or a closed terminal, a run stops its servers as after Ctrl-C; which
        # a shell's background jobs ignore, and so would every process that tests start.
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(ending, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    servers: Servers = node.config.stash[SERVERS]
    node.workerinput["postgres_uri"] = servers.postgres_uri
    node.workerinput["redis_url"] = servers.redis_url


def pytest_unconfigure(config: pytest.Config) -> None:
    drop_kept()
    config.stash[SERVERS].close()


def _server(config: pytest.Config, name: str) -> str:
    workerinput: dict[str, str] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        return workerinput[name]
    return str(getattr(config.stash[SERVERS], name))


@pytest.fixture(scope="session")
def usual_fixes() -> frozenset[str]:
    """The patches that a wrapper applies by default, in place before any saver is compared."""
    usual = [d.slug for d in DEFECTS if isinstance(d.remedy, Patch) and not d.remedy.unguarded]
    fixes.apply(usual)
    return fixes.applied()


@pytest.fixture
def as_released() -> None:
    """No patch is in place when the test begins; it may apply some."""


@pytest.fixture(autouse=True)
def _the_same_fixes_for_every_test(
    request: pytest.FixtureRequest, usual_fixes: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patches are process-wide: what the test before applied or reverted is undone.

    Where the release replays writes wrongly, wrapped equals raw, wrong as it is: nothing is
    answered for it but in the tests of the answers. Only what lets runs end stays, raw ones too.
    """
    wrong = not reloads_what_ran() and ANSWERED.isdisjoint(request.path.parts)
    wanted = usual_fixes & ENDING if wrong else usual_fixes
    if "as_released" in request.fixturenames:
        wanted = frozenset()
    applied = fixes.applied()
    if applied != wanted:
        fixes.revert(applied - wanted)
        fixes.apply(wanted - applied)
    if wrong:
        monkeypatch.setenv("DEERFLOW_SAVER_FIXES", "off")


@pytest.fixture
def no_fixes(usual_fixes: frozenset[str]) -> Iterator[None]:
    """LangGraph as it was released."""
    with fixes.disabled():
        yield


@pytest.fixture(scope="session")
def postgres_uri(pytestconfig: pytest.Config) -> str:
    """The run's Postgres server; tests take `postgres_database` or `storage`."""
    return _server(pytestconfig, "postgres_uri")


@pytest.fixture(scope="session")
def redis_url(pytestconfig: pytest.Config) -> str:
    """This worker's database on the run's Redis server; tests that write take `redis_database`."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return numbered_redis(_server(pytestconfig, "redis_url"), int(worker))


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """No test finds a channel mode frozen by another, a page of the docs for example."""
    with thawed():
        yield


@pytest.fixture
def postgres_database(postgres_uri: str) -> Iterator[str]:
    """The URI of an empty database of this test's own."""
    with fresh_postgres(postgres_uri) as uri:
        yield uri


@pytest.fixture
def redis_database(redis_url: str) -> Iterator[str]:
    """The URL of an empty Redis database that no other test uses meanwhile."""
    empty_redis(redis_url)
    yield redis_url
    empty_redis(redis_url)


@pytest.fixture
def storage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Storage]:
    """Where a `SaverCase` is opened, and opened again."""
    storage = Storage(tmp_path, lambda: str(request.getfixturevalue("postgres_uri")))
    yield storage
    storage.close()
