"""A database to oneself, on a server that is shared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import redis
from psycopg import sql


@contextmanager
def fresh_postgres(server_uri: str) -> Iterator[str]:
    """The URI of a new, empty database; it is dropped at the end, whoever is still connected.

    A database and not a schema: `CREATE INDEX CONCURRENTLY`, which the savers' `setup`
    runs, waits for every open transaction of the same database.
    """
    name = f"test_{uuid4().hex}"
    database = sql.Identifier(name)
    with psycopg.connect(server_uri, autocommit=True) as admin:
        # Copying files takes two thirds of the time of the default strategy.
        admin.execute(sql.SQL("CREATE DATABASE {} STRATEGY file_copy").format(database))
        try:
            yield urlsplit(server_uri)._replace(path=f"/{name}").geturl()
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


def numbered_redis(server_url: str, number: int) -> str:
    """The URL of the server's database `number`, counted from the one the URL names."""
    parts = urlsplit(server_url)
    first = int(parts.path.strip("/") or 0)
    return parts._replace(path=f"/{first + number}").geturl()


def empty_redis(url: str) -> None:
    """Remove every key of one database."""
    with redis.Redis.from_url(url) as client:
        client.flushdb()
