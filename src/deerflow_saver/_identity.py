"""Which database a saver has open, told by the database itself and never by a config section.

Two deployments that share a Redis must never take each other's records, whatever their
configs look like: both may call their database `postgres://db/app`, or `localhost`. So the
server's own identifier counts, which only a copy of its files has too, and the address by
which it is reached; an address that means something else on every machine is made one of
this machine. Nothing of it is a credential.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import socket
import uuid
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from deerflow_saver.cache.keys import digest
from deerflow_saver.walks.asking import Statement, aask, ask, family_of

__all__ = ["Identity", "aidentity_of", "identity_of"]

_FILES = Statement("PRAGMA database_list", {})
_SERVER = (
    "SELECT (SELECT system_identifier::text FROM pg_control_system()), "
    "(SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database, "
    "to_regclass('checkpoints')::oid::text AS checkpoints"
)
"""The table itself counts, not a schema's name: a search path may find it in any of several."""


class Identity(NamedTuple):
    """A database's name in a shared store, and what its workers know and the store does not."""

    prefix: str
    secret: bytes
    """Made of the database's password; empty where there is none."""


def identity_of(saver: Any) -> Identity:
    """The identity of the database that `saver` has open.

    Raises:
        Exception: whatever the driver raises; the database did not tell.

    """
    loop = getattr(saver, "loop", None)
    if loop is not None:
        return asyncio.run_coroutine_threadsafe(aidentity_of(saver), loop).result()
    family = family_of(saver, "get_tuple")
    if family == "sqlite":
        return _of_file(ask(saver, _FILES))
    if family != "postgres":
        return _of_its_own()
    with saver._cursor() as cursor:  # noqa: SLF001 - takes the saver's lock as it does
        cursor.execute(_SERVER)
        return _of_server(list(cursor.fetchone().values()), cursor.connection.info)


async def aidentity_of(saver: Any) -> Identity:
    """`identity_of` on the async face."""
    family = family_of(saver, "get_tuple")
    if family == "sqlite":
        return _of_file(await aask(saver, _FILES))
    if family != "postgres":
        return _of_its_own()
    async with saver._cursor() as cursor:  # noqa: SLF001 - as above
        await cursor.execute(_SERVER)
        return _of_server(list((await cursor.fetchone()).values()), cursor.connection.info)


def _of_its_own() -> Identity:
    """Nobody else has this database: one in memory, or of a saver that is not known."""
    return Identity(uuid.uuid4().hex, b"")


def _of_file(databases: Any) -> Identity:
    path = next((str(row[2]) for row in databases if row[1] == "main"), "")
    if not path:
        return _of_its_own()
    found = Path(path).stat()
    return Identity(digest("sqlite", _machine(), str(found.st_dev), str(found.st_ino)), b"")


def _of_server(names: list[Any], info: Any) -> Identity:
    if None in names:
        msg = f"the database has no table of checkpoints, or does not tell of it: {names}"
        raise LookupError(msg)
    host = info.host or ""
    where = _machine() if _is_local(host) else ""
    parts = ("postgres", *map(str, names), where, host.lower(), str(info.port))
    prefix = digest(*parts)
    return Identity(prefix, _slowly(info.password or "", prefix))


@cache
def _slowly(password: str, salt: str) -> bytes:
    """A key nobody can guess the password from in less time than it takes to guess at scrypt."""
    if not password:
        return b""
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=1 << 14, r=8, p=1, dklen=32)


def _is_local(host: str) -> bool:
    """Whether the address means another server on another machine."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _machine() -> str:
    """This machine since it was started; a container has its host's."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode()} {os.name}"
