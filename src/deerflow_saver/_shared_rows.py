"""Between facts and the bytes that other workers read: sealing, packing, decoding."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from deerflow_saver._serde import seal, unseal
from deerflow_saver.cache.keys import link_field, record_field, seed_field
from deerflow_saver.cache.records import Codec, Record
from deerflow_saver.history.chain import Fetched
from deerflow_saver.history.facts import ABSENT, HELD, Packed, Row
from deerflow_saver.history.isolation import Write
from deerflow_saver.history.sharing import News

__all__ = ["PathReader", "fields_of"]

_LINKS = "links"
"""A name no namespace and channel have together: links are those of all channels."""


def fields_of(
    news: News, codec: Codec, key: str, ns: str, serde: Any
) -> tuple[list[tuple[str, bytes]], list[str]]:
    """The fields that tell `news` about a thread and namespace, and those that are over.

    `serde` is the wrapped saver's own: payloads leave as it writes them, encrypted if it
    encrypts. What could only be pickled is not shared.

    Raises:
        ValueError: an id that is too long to be shared.
        TypeError: an id that is no text.

    """
    cid = news.checkpoint_id
    fields = [(link_field(ns, cid), codec.place(key, ns, _LINKS).link(cid, news.parent))]
    for above, channel, parent, stored, own in news.sealed:
        if not any(row.value.kind == "pickle" for row in own):
            rows = [row._replace(value=seal(serde, row.value)) for row in own]
            place = codec.place(key, ns, "record", channel)
            fields.append(
                (record_field(ns, above, channel), place.record(above, parent, stored, rows))
            )
    for channel, stored, value in news.seeds:
        if value.kind != "pickle":
            place = codec.place(key, ns, "seed", channel)
            sealed = place.seed("", stored[1], seal(serde, value))
            fields.append((seed_field(ns, channel), sealed))
    over = [link_field(ns, news.parent)] if news.sealed and news.parent else []
    return fields, over


class PathReader:
    """Reads one channel's path, up to whatever cannot be read.

    Args:
        codec: of the database.
        key: of the thread.
        ns: the namespace.
        channel: whose records these are.
        serdes: the wrapped saver's serialiser, and the one below its encryption.

    """

    def __init__(
        self, codec: Codec, key: str, ns: str, channel: str, serdes: tuple[Any, Any]
    ) -> None:
        self._links = codec.place(key, ns, _LINKS)
        self._records = codec.place(key, ns, "record", channel)
        self._seeds = codec.place(key, ns, "seed", channel)
        self._ns = ns
        self._channel = channel
        self._sealed, self._plain = serdes
        self._encrypted = self._sealed is not self._plain
        self.unreadable: list[str] = []
        """Fields that are to be removed."""

    def read(
        self,
        start: str,
        path: Sequence[tuple[bytes, bytes]],
        seed: bytes | None,
        anchors: Collection[str] = (),
    ) -> Mapping[str, Fetched]:
        """Per checkpoint what is known of it, ready to compose with.

        Values are decoded if the path leads to a snapshot, the root or one of `anchors`. Where it
        does not, the saver will probably be asked for everything: they stay packed until then.
        """
        records = self._records_of(start.encode(), path)
        last, end = next(reversed(records.items()), (start, None))
        held = None
        if end is not None and seed is not None and last != start:
            known = end.stored is not ABSENT and end.stored is not HELD
            held = self._seed(end.stored, seed) if known else None
        whole = end is not None and (end.parent is None or end.parent in anchors)
        rows: dict[str, Fetched] = {}
        for cid, record in records.items():
            own = self._writes(record, packed=held is None and not whole)
            if own is None:
                self._discard(cid, link=False)
                break
            values = {} if cid == start or record.stored is ABSENT else {self._channel: None}
            rows[cid] = Fetched(record.parent, values, own)
        if held is not None and last in rows:
            rows[last] = rows[last]._replace(values={self._channel: held})
        return rows

    def _records_of(self, start: bytes, path: Sequence[tuple[bytes, bytes]]) -> dict[str, Record]:
        """The path's records, up to whatever cannot be read."""
        records: dict[str, Record] = {}
        for cid, value in path:
            record = self._records.read(cid, value)
            if cid == start:  # of it, only the parent is needed
                record = record or self._links.read(cid, value)
                record = record and record._replace(own=())
            if record is None:
                self._discard(cid.decode("utf-8", "replace"), link=cid == start)
                break
            records[cid.decode()] = record
        return records

    def _writes(self, record: Record, *, packed: bool) -> Sequence[Write | Row] | None:
        """Own writes; None if one of them cannot be decoded."""
        channel = self._channel
        try:
            if packed:
                return [
                    Row("", task, at, channel, self._unsealed(value))
                    for at, (task, value) in enumerate(record.own)
                ]
            return [(task, channel, self._value(value)) for task, value in record.own]
        except Exception:  # noqa: BLE001 - a payload that cannot be decoded is a miss
            return None

    def _unsealed(self, packed: Packed) -> Packed:
        return unseal(self._sealed, packed) if self._encrypted else packed

    def _value(self, packed: Packed) -> Any:
        return self._plain.loads_typed(self._unsealed(packed))

    def _seed(self, version: Any, value: bytes) -> Any:
        """The snapshot of that version; None if the newest one is another, or unreadable."""
        read = self._seeds.read_seed(b"", value)
        try:
            if read is not None:
                known, packed = read
                same = type(known) is type(version) and known == version
                return self._value(packed) if same else None
        except Exception:  # noqa: BLE001 - as above
            read = None
        self.unreadable.append(seed_field(self._ns, self._channel))
        return None

    def _discard(self, cid: str, *, link: bool) -> None:
        self.unreadable.append(record_field(self._ns, cid, self._channel))
        if link:
            self.unreadable.append(link_field(self._ns, cid))
