"""The bytes of shared records: what was written is read, and nothing else ever is."""

from __future__ import annotations

import pickle
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deerflow_saver._serde import name_of, seal, unseal
from deerflow_saver.cache.keys import digest, thread_key
from deerflow_saver.cache.records import Codec, Place
from deerflow_saver.history.facts import ABSENT, HELD, Packed, Row
from support.ciphers import Rotation

PLACE = Codec("db", "serde", b"secret").place("thread", "", "record", "log")
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
versions = st.one_of(
    st.text(max_size=8).filter(str.isprintable), st.integers(-9, 9), st.floats(0, 9)
)
stored = st.one_of(st.sampled_from((ABSENT, HELD)), versions.map(lambda v: ("log", v)))
rows = st.builds(
    Row,
    path=texts,
    task_id=texts,
    idx=st.integers(-4, 9),
    channel=st.just("log"),
    value=st.builds(Packed, st.sampled_from(("msgpack", "null", "bytes")), st.binary(max_size=20)),
)
parents = st.none() | texts.filter(lambda text: 0 < len(text.encode()) < 256)


@given(parents, stored, st.lists(rows, max_size=4))
def test_a_record_is_read_back(parent: str | None, how: Any, own: list[Row]) -> None:
    read = PLACE.read(b"cid", PLACE.record("cid", parent, how, own))
    assert read is not None
    assert read.parent == parent
    assert read.stored == (how[1] if type(how) is tuple else how)
    assert list(read.own) == [(row.task_id, row.value) for row in own]


@given(parents)
def test_a_link_is_read_back(parent: str | None) -> None:
    read = PLACE.read(b"cid", PLACE.link("cid", parent))
    assert read is not None
    assert (read.parent, read.stored, list(read.own)) == (parent, HELD, [])


@given(versions, st.binary(max_size=30))
def test_a_seed_is_read_back(version: Any, data: bytes) -> None:
    packed = Packed("msgpack", data)
    assert PLACE.read_seed(b"", PLACE.seed("", version, packed)) == (version, packed)


@given(st.binary(max_size=80))
def test_noise_is_a_miss(noise: bytes) -> None:
    assert PLACE.read(b"cid", noise) is None
    assert PLACE.read_seed(b"", noise) is None


@settings(max_examples=150)
@given(parents, stored, st.lists(rows, max_size=3), st.data())
def test_a_value_that_was_changed_anywhere_is_a_miss(
    parent: str | None, how: Any, own: list[Row], data: st.DataObject
) -> None:
    value = bytearray(PLACE.record("cid", parent, how, own))
    cut = data.draw(st.sampled_from(("flip", "cut", "grow")))
    at = data.draw(st.integers(0, len(value) - 1))
    if cut == "flip":
        value[at] ^= data.draw(st.integers(1, 255))
    elif cut == "cut":
        del value[at:]
    else:
        value[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    assert PLACE.read(b"cid", bytes(value)) is None


bodies = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.binary(min_size=3, max_size=12), bodies)
def test_a_value_with_a_right_digest_and_nonsense_inside_is_a_miss_or_a_record(
    head: bytes, body: Any
) -> None:
    """What somebody who knows the secret may write never raises either."""
    value = b"1" + head + ormsgpack.packb(body)
    value += PLACE._sum(b"cid", value)
    read = PLACE.read(b"cid", value)
    assert read is None or all(type(task) is str for task, _ in read.own)
    PLACE.read_seed(b"cid", value)


def other_places() -> list[Place]:
    codecs = [Codec("db", "serde"), Codec("db2", "serde", b"secret"), Codec("db", "s", b"secret")]
    same = Codec("db", "serde", b"secret")
    names = [("thread2", "", "record", "log"), ("thread", "ns", "record", "log"),
             ("thread", "", "record", "log2"), ("thread", "", "seed", "log"),
             ("thread", "r", "ecord", "log")]  # fmt: skip
    return [
        *(codec.place("thread", "", "record", "log") for codec in codecs),
        *(same.place(*each) for each in names),
    ]


def test_a_value_counts_in_its_own_place_only() -> None:
    value = PLACE.record("cid", "parent", ABSENT, [])
    assert PLACE.read(b"cid", value) is not None
    assert PLACE.read(b"cid2", value) is None
    assert [place.read(b"cid", value) for place in other_places()] == [None] * 8


@pytest.mark.parametrize("kind", ["pickle", "pickle+aes"])
def test_a_pickle_is_a_miss_even_with_a_right_digest(kind: str) -> None:
    row = Row("", "task", 0, "log", Packed(kind, pickle.dumps(1)))
    assert PLACE.read(b"cid", PLACE.record("cid", None, ABSENT, [row])) is None
    assert PLACE.read_seed(b"", PLACE.seed("", "1", row.value)) is None


def test_an_id_that_is_too_long_is_not_shared() -> None:
    with pytest.raises(ValueError, match="255"):
        PLACE.link("cid", "x" * 256)


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_digests_of_different_names_differ(one: list[str], two: list[str]) -> None:
    assert (digest(*one) == digest(*two)) == (one == two)


@given(st.text(max_size=6))
def test_a_key_has_one_hash_tag_and_no_pattern(thread: str) -> None:
    key = thread_key("db", thread)
    assert key.count("{") == key.count("}") == 1
    assert not set(key) & set("*?[]\0 \n")


def test_sealing_is_what_the_serialiser_does() -> None:
    serde = EncryptedSerializer(Rotation(), JsonPlusSerializer())
    packed = Packed(*JsonPlusSerializer().dumps_typed(["text"]))
    sealed = seal(serde, packed)
    assert serde.loads_typed((sealed.kind, sealed.data)) == ["text"]
    assert unseal(serde, sealed) == packed
    assert unseal(serde, Packed(*serde.dumps_typed(["text"]))) == packed
    with pytest.raises(ValueError, match="not encrypted"):
        unseal(serde, packed)
    assert name_of(serde) != name_of(serde.serde)


class Own(EncryptedSerializer):
    """Encrypts in a way of its own."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self.serde.dumps_typed(obj)


def test_what_cannot_be_sealed_is_not_shared() -> None:
    assert name_of(Own(Rotation())) is None
