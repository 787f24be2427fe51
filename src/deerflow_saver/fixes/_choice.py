"""Which fixes a wrapper asks for: its `fixes` argument, and what its saver and guard need."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.fixes._fix import Defect, Patch
from deerflow_saver.fixes._registry import Registry

__all__ = ["Fixes", "chosen", "is_on", "needed"]

Fixes = Literal["auto", "off"] | Iterable[str]
"""`CachedHistorySaver`'s argument: what its saver needs, nothing, or those slugs."""

_UNGUARDED = frozenset({"observe", "off"})


def chosen(registry: Registry, fixes: Any) -> frozenset[str]:
    """The slugs that `fixes` and the environment leave on.

    Raises:
        InvalidConfigError: neither `"auto"`, nor `"off"`, nor an iterable of known slugs.

    """
    if fixes == "off":
        return frozenset()
    if fixes != "auto" and (isinstance(fixes, str) or not isinstance(fixes, Iterable)):
        msg = f"fixes must be 'auto', 'off' or an iterable of slugs; got {fixes!r}"
        raise InvalidConfigError(msg)
    try:
        return registry.selected(None if fixes == "auto" else fixes)
    except (TypeError, ValueError) as error:
        msg = f"fixes: {error}"
        raise InvalidConfigError(msg) from error


def is_on(registry: Registry, slug: str, fixes: Any) -> bool:
    """Whether `fixes` leaves one slug on; what is wrong with `fixes` is said by `chosen`."""
    if not isinstance(fixes, str | Collection):
        return False  # it can be looked through only once
    try:
        return slug in chosen(registry, fixes)
    except InvalidConfigError:
        return False


def needed(defects: Iterable[Defect], on: frozenset[str], inner: Any, guard: str) -> list[str]:
    """Of the slugs that are on, those with a patch that this saver and guard need."""
    kinds = {kind for kind in ("memory", "sqlite", "postgres") if _is(inner, kind)}
    return [
        defect.slug
        for defect in defects
        if defect.slug in on
        and isinstance(defect.remedy, Patch)
        and (not defect.savers or defect.savers & kinds)
        and (guard in _UNGUARDED or not defect.remedy.unguarded)
    ]


def _is(saver: Any, kind: str) -> bool:
    home = f"langgraph.checkpoint.{kind}"
    return any(f"{cls.__module__}.".startswith(f"{home}.") for cls in type(saver).__mro__)
