"""Allowlists and encryption: what one way of decoding gave is never served to another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow_saver import CachedHistorySaver
from support.ciphers import Rotation
from support.conversation import assert_reads_equal, thread, turns
from support.savers import SaverCase, Storage, every_sync_case

TESTS = Path(__file__).parent
ROOT: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


@dataclass
class Note:
    """A type of the application's."""

    text: str


@dataclass
class Other:
    """Another one."""

    text: str


def module(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__name__


def strict() -> JsonPlusSerializer:
    """What LangGraph uses under LANGGRAPH_STRICT_MSGPACK: nothing but the safe types."""
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def stored(saver: Any) -> Any:
    """The head of a thread whose history holds values of both types, and one of each as seed."""
    seed = _DeltaSnapshot([Note("seed"), Other("seed")])
    root: Any = {**empty_checkpoint(), "channel_values": {"log": seed}}
    root["channel_versions"] = {"log": "1"}
    config = saver.put(ROOT, root, {"source": "input"}, {"log": "1"})
    saver.put_writes(config, [("log", Note("a")), ("log", [Other("b")])], "task")
    return saver.put(config, empty_checkpoint(), {"source": "loop"}, {})


def read(saver: Any, config: Any) -> Any:
    return saver.get_delta_channel_history(config=config, channels=["log"])["log"]


def test_a_strict_process_sees_the_same_types_raw_and_wrapped() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "support.strict"],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true", "PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["strict"] is True
    for name, case in found["cases"].items():
        assert case["wrapped"] == case["raw"], name
        assert case["hits"] > 0
        shown = "".join(case["raw"])
        assert "Note(text='step 1')" in shown  # let in,
        assert "{'text': 'step 1'}" in shown  # blocked for the schema that does not name it,
        assert "Secret(" not in shown  # and for every schema


@every_sync_case
def test_every_allowlist_decodes_for_itself(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        raw.serde = strict()
        saver: Any = CachedHistorySaver(raw)
        head = stored(saver)
        pairs = [(saver, raw)] + [
            (saver.with_allowlist(allowed), raw.with_allowlist(allowed))
            for allowed in ([module(Note)], [module(Other)], [module(Note), module(Other)])
        ]
        seen = []
        for _ in range(3):
            for ours, theirs in pairs:
                found = read(ours, head)
                assert found == read(theirs, head)
                seen.append(repr(found))
        assert len(set(seen)) == 4
        assert saver.cache_info().hits >= 8


def test_the_same_allowlist_again_is_served_from_the_cache() -> None:
    raw = InMemorySaver(serde=strict())
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    first = read(saver.with_allowlist([module(Note)]), head)
    before = saver.cache_info()
    again = saver.with_allowlist({module(Note)})  # as every compilation of a graph does
    assert read(again, head) == first
    after = saver.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)


def test_an_allowlist_gives_a_wrapper_round_the_clone() -> None:
    raw = InMemorySaver(serde=strict())
    saver: Any = CachedHistorySaver(raw)
    clone = saver.with_allowlist([module(Note)])
    assert isinstance(clone, CachedHistorySaver)
    assert isinstance(clone, InMemorySaver)
    assert clone.inner is not raw
    assert clone.storage is raw.storage
    assert clone.serde is not raw.serde
    assert saver.serde is raw.serde
    assert clone.cache_info() == saver.cache_info()
    head = stored(clone)
    read(saver, head)
    assert clone.cache_info() == saver.cache_info()
    assert clone.cache_info().misses == 1
    clone.purge_thread("1")
    assert saver.cache_info().entries == 0


def test_an_allowlist_that_adds_nothing_gives_the_wrapper_itself() -> None:
    saver: Any = CachedHistorySaver(InMemorySaver())
    assert saver.with_allowlist([module(Note)]) is saver


def test_a_write_under_one_allowlist_is_read_under_another_as_the_saver_would() -> None:
    raw = InMemorySaver(serde=strict())
    saver: Any = CachedHistorySaver(raw)
    raw_clone = raw.with_allowlist([module(Note)])
    clone = saver.with_allowlist([module(Note)])
    config = saver.put(ROOT, empty_checkpoint(), {"source": "input"}, {})
    read(saver, config)
    for number, writer in enumerate([saver, clone, saver, clone]):
        writer.put_writes(config, [("log", Note(str(number)))], f"task {number}")
        config = writer.put(config, empty_checkpoint(), {"source": "loop"}, {})
        for _ in range(2):
            assert repr(read(saver, config)) == repr(read(raw, config))
            assert repr(read(clone, config)) == repr(read(raw_clone, config))
    assert "Note(" in repr(read(clone, config))
    assert "Note(" not in repr(read(saver, config))


@every_sync_case
def test_reads_equal_with_an_encrypting_serialiser(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        raw.serde = EncryptedSerializer(Rotation())
        saver: Any = CachedHistorySaver(raw)
        for _ in turns(saver, thread()):
            assert_reads_equal(saver, raw, thread())
        assert saver.cache_info().hits > 0
        assert saver.cache_info().errors == 0


def test_what_is_stored_stays_encrypted() -> None:
    raw = InMemorySaver(serde=EncryptedSerializer(Rotation()))
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    read(saver, head)
    kinds = {entry[2][0] for rows in raw.writes.values() for entry in rows.values()}
    kinds |= {kind for kind, _ in raw.blobs.values()}
    assert kinds == {"msgpack+rotation"}


def test_a_repeated_read_decrypts_nothing() -> None:
    cipher = Rotation()
    saver: Any = CachedHistorySaver(InMemorySaver(serde=EncryptedSerializer(cipher)))
    config = saver.put(ROOT, empty_checkpoint(), {"source": "input"}, {})
    saver.put_writes(config, [("log", HumanMessage("hello", id="1"))], "task")
    head = saver.put(config, empty_checkpoint(), {"source": "loop"}, {})
    first = read(saver, head)
    decrypted = cipher.decrypted
    assert read(saver, head) == first
    assert cipher.decrypted == decrypted


def test_allowlists_work_below_encryption() -> None:
    raw = InMemorySaver(serde=EncryptedSerializer(Rotation(), strict()))
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    clone, raw_clone = saver.with_allowlist([module(Note)]), raw.with_allowlist([module(Note)])
    for _ in range(2):
        assert repr(read(saver, head)) == repr(read(raw, head))
        assert repr(read(clone, head)) == repr(read(raw_clone, head))
    assert "Note(text='a')" in repr(read(clone, head))
    assert "Note(text='a')" not in repr(read(saver, head))


def test_a_key_that_no_longer_fits_fails_as_with_the_saver() -> None:
    class Lost(Rotation):
        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            message = "the key is lost"
            raise ValueError(message)

    raw = InMemorySaver(serde=EncryptedSerializer(Rotation()))
    saver: Any = CachedHistorySaver(raw)
    head = stored(saver)
    raw.serde = EncryptedSerializer(Lost())
    for target in (raw, saver):
        with pytest.raises(ValueError, match="the key is lost"):
            read(target, head)
