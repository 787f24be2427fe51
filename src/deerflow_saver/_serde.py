"""Serialisers: which decode alike, and how values are kept inside the process."""

from __future__ import annotations

from typing import Any, cast

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deerflow_saver._taping import noted_answer
from deerflow_saver.history.facts import Packed
from deerflow_saver.history.isolation import Serde

__all__ = ["name_of", "pack", "plain_serde", "seal", "token_of", "unseal"]


def plain_serde(serde: Any) -> Serde:
    """The serialiser below encryption: what is kept here never leaves the process."""
    if type(serde) is not JsonPlusSerializer and isinstance(serde, EncryptedSerializer):
        return plain_serde(serde.serde)
    return cast("Serde", serde)


def token_of(serde: Any) -> Any:
    """Equal for serialisers that decode alike: same class, same allowlists.

    LangGraph makes a new serialiser for every run (`with_allowlist`) by copying one and
    changing its allowlists, so identity says nothing; for classes other than
    `JsonPlusSerializer` and its subclasses, identity is all there is.
    """
    serde = plain_serde(serde)
    if not isinstance(serde, JsonPlusSerializer):
        return ("object", id(serde))
    state = dict(vars(serde))
    if not state.get("_custom_unpack_ext_hook", True):
        state.pop("_unpack_ext_hook", None)  # made from the allowlist
    named = sorted((name, _comparable(value)) for name, value in state.items())
    return (type(serde), *named)


def _comparable(value: Any) -> str:
    """The same for equal settings; objects are known by identity."""
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, value)))
    return repr(value) if isinstance(value, bool | str | int | None) else f"object {id(value)}"


def pack(serde: Serde, value: Any) -> Packed | None:
    """The value serialised, or None if the serialiser refuses (the saver will say so itself)."""
    try:
        noted = noted_answer(serde.dumps_typed(value))
        return None if noted is None else Packed(*noted)
    except Exception:  # noqa: BLE001 - any failure means the same here: nothing is learnt
        return None


def name_of(serde: Any) -> str | None:
    """How payloads leave the process: the serialiser's class, and what encrypts round it.

    None for a serialiser round which they could not be written. An allowlist is no part of
    it: it decides what a reader makes of a payload, and each reader decodes by its own.
    """
    kind = type(serde)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not isinstance(serde, EncryptedSerializer):
        return name
    if kind.dumps_typed is not EncryptedSerializer.dumps_typed:
        return None
    below = name_of(serde.serde)
    return None if below is None else f"{name}({below})"


def seal(serde: Any, packed: Packed) -> Packed:
    """What `plain_serde(serde)` wrote, as `serde` itself would have written it."""
    if not isinstance(serde, EncryptedSerializer):
        return packed
    inside = seal(serde.serde, packed)
    cipher, data = serde.cipher.encrypt(inside.data)
    return Packed(f"{inside.kind}+{cipher}", data)


def unseal(serde: Any, packed: Packed) -> Packed:
    """What `serde` wrote, as `plain_serde(serde)` reads it.

    Raises:
        ValueError: it is not encrypted, or by another cipher.

    """
    if not isinstance(serde, EncryptedSerializer):
        return packed
    kind, plus, cipher = packed.kind.rpartition("+")
    if not plus:
        msg = "a payload that is not encrypted"
        raise ValueError(msg)
    return unseal(serde.serde, Packed(kind, serde.cipher.decrypt(cipher, packed.data)))
