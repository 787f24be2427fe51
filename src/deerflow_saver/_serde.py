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

    LangGraph makes a new serialiser for every run (`with_allowlist`), so identity says
    nothing; for classes other than its own, identity is all there is.
    """
    serde = plain_serde(serde)
    if type(serde) is not JsonPlusSerializer:
        return ("object", id(serde))
    allowed = (
        getattr(serde, "_allowed_msgpack_modules", None),
        getattr(serde, "_allowed_json_modules", None),
    )
    lists = [frozenset(names) if isinstance(names, set) else names for names in allowed]
    custom = getattr(serde, "_custom_unpack_ext_hook", True)
    hook = id(getattr(serde, "_unpack_ext_hook", serde)) if custom else 0
    return ("jsonplus", *lists, serde.pickle_fallback, hook)


def pack(serde: Serde, value: Any) -> Packed | None:
    """The value serialised, or None if the serialiser refuses (the saver will say so itself)."""
    try:
        return Packed(*serde.dumps_typed(value))
    except Exception:  # noqa: BLE001 - any failure means the same here: nothing is learnt
        return None
