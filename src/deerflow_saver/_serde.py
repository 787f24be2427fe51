"""Serialisers: which decode alike, and how values are kept inside the process."""

from __future__ import annotations

from typing import Any, cast

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deerflow_saver.history.facts import Packed
from deerflow_saver.history.isolation import Serde

__all__ = ["pack", "plain_serde", "token_of"]


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
        kind, data = serde.dumps_typed(value)
        return Packed(kind, bytes(data))  # a bytearray is given as the very object
    except Exception:  # noqa: BLE001 - any failure means the same here: nothing is learnt
        return None
