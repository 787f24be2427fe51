"""What a saver stores: bytes and rows, as its tables or dictionaries tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["file_size", "file_sizes", "storage_stats"]

_TABLES = {
    "checkpoint": "SELECT COALESCE(SUM(LENGTH(checkpoint) + LENGTH(metadata)), 0), COUNT(*) "
    "FROM checkpoints",
    "write": "SELECT COALESCE(SUM(LENGTH(value)), 0), COUNT(*) FROM writes",
}


def storage_stats(saver: Any, path: Path | None) -> dict[str, int]:
    """`logical_checkpoint_bytes`, `checkpoint_rows`, `logical_write_bytes`, `write_rows`.

    Args:
        saver: an `InMemorySaver`, if `path` is None.
        path: of a SQLite database.

    """
    found = _of_memory(saver) if path is None else _of_sqlite(path)
    return {
        name: number
        for kind, (size, rows) in found.items()
        for name, number in ((f"logical_{kind}_bytes", size), (f"{kind}_rows", rows))
    }


def file_size(path: Path) -> int:
    """Bytes; 0 where there is no file."""
    return path.stat().st_size if path.exists() else 0


def file_sizes(path: Path | None) -> dict[str, int | None]:
    """Of a SQLite database and the files beside it; None of what is in memory."""
    names = {"db_bytes": "", "wal_bytes": "-wal", "shm_bytes": "-shm"}
    return {
        name: None if path is None else file_size(path.with_name(path.name + ending))
        for name, ending in names.items()
    }


def _of_sqlite(path: Path) -> dict[str, tuple[int, int]]:
    import sqlite3

    connection = sqlite3.connect(path)
    try:
        return {kind: connection.execute(sql).fetchone() for kind, sql in _TABLES.items()}
    finally:
        connection.close()


def _of_memory(saver: Any) -> dict[str, tuple[int, int]]:
    rows = [
        row
        for namespaces in saver.storage.values()
        for checkpoints in namespaces.values()
        for row in checkpoints.values()
    ]
    size = sum(len(part[1]) for row in rows for part in row[:2])
    size += sum(len(blob[1]) for blob in saver.blobs.values())
    writes = [write for those in saver.writes.values() for write in those.values()]
    return {
        "checkpoint": (size, len(rows)),
        "write": (sum(len(write[2][1]) for write in writes), len(writes)),
    }
