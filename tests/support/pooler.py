"""A pooler as PgBouncer is in its transaction mode: every transaction gets another session.

It speaks as much of Postgres' protocol as that needs, and only to servers that ask for no
password: clients come by TCP, and share a few server connections in turn.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

__all__ = ["transaction_pooler"]

_NO_ENCRYPTION = {80877103, 80877104}
_VERSION = 196608


@contextmanager
def transaction_pooler(uri: str, size: int) -> Iterator[str]:
    """The address of a pooler of `size` sessions in front of the database of `uri`."""
    sessions: queue.Queue[_Session] = queue.Queue()
    for _ in range(size):
        sessions.put(_Session(uri))
    clients: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_serve, args=(listener, sessions, uri, clients))
        server.start()
        yield f"host=127.0.0.1 port={listener.getsockname()[1]} user=any dbname=any"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        server.join()
    for client in clients:  # its session may come back last
        client.join(timeout=10)
    while not sessions.empty():
        sessions.get().close()


class _Session:
    """One connection to the server, past its greeting."""

    def __init__(self, uri: str) -> None:
        where: dict[str, Any] = {"port": 5432, **conninfo_to_dict(uri)}
        if str(where["host"]).startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(Path(where["host"]) / f".s.PGSQL.{where['port']}"))
        else:
            self.socket = socket.create_connection((where["host"], int(where["port"])))
        names = f"user\0{where['user']}\0database\0{where['dbname']}\0\0".encode()
        self.socket.sendall(struct.pack("!ii", 8 + len(names), _VERSION) + names)
        self.greeting = b"".join(self.until_ready())

    def until_ready(self) -> Iterator[bytes]:
        """Its messages up to the one that says it is ready."""
        message = b""
        while message[:1] != b"Z":
            message = _message(self.socket)
            yield message

    def close(self) -> None:
        self.socket.close()


def _read(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def _message(connection: socket.socket) -> bytes:
    head = _read(connection, 5)
    return head + _read(connection, struct.unpack("!i", head[1:])[0] - 4)


def _serve(
    listener: socket.socket,
    sessions: queue.Queue[_Session],
    uri: str,
    clients: list[threading.Thread],
) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            thread = threading.Thread(target=_client, args=(client, sessions, uri), daemon=True)
            clients.append(thread)
            thread.start()


def _client(client: socket.socket, sessions: queue.Queue[_Session], uri: str) -> None:
    session: _Session | None = None
    try:
        _welcome(client, sessions)
        while (message := _message(client))[:1] != b"X":
            session = session or sessions.get()
            session.socket.sendall(message)
            if message[:1] not in {b"Q", b"S"}:
                continue
            for answer in session.until_ready():
                client.sendall(answer)
            if answer[5:] == b"I":  # no transaction is open: the next client's turn
                sessions.put(session)
                session = None
    except (ConnectionError, OSError):
        pass
    finally:
        client.close()
        if session is not None:  # in the middle of a transaction
            session.close()
            with suppress(OSError):
                sessions.put(_Session(uri))


def _welcome(client: socket.socket, sessions: queue.Queue[_Session]) -> None:
    """Begin without encryption, and greet as a server does."""
    length, code = struct.unpack("!ii", _read(client, 8))
    while code in _NO_ENCRYPTION:
        client.sendall(b"N")
        length, code = struct.unpack("!ii", _read(client, 8))
    if code != _VERSION:
        raise ConnectionError  # a request to cancel
    _read(client, length - 8)
    session = sessions.get()
    sessions.put(session)
    client.sendall(session.greeting)
