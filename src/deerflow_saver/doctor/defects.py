"""Which of the defects that are here nothing answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from deerflow_saver import fixes
from deerflow_saver.fixes import Presence, Row

__all__ = ["Kind", "Setting", "concerns", "unanswered"]

Kind = Literal["memory", "sqlite", "postgres", "other"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a saver brings to meet the defects with.

    Attributes:
        kind: of the storage saver; None if none is known, then every defect counts.
        wrapped: whether `CachedHistorySaver` is in the stack and will be asked.
        guarded: whether its guard refuses.
        fixes: slugs of `deerflow_saver.fixes` that are on.
        accepted: slugs whose advice is followed, as the user says.

    """

    kind: Kind | None = None
    wrapped: bool = True
    guarded: bool = True
    fixes: Collection[str] = field(default_factory=fixes.selected)
    accepted: Collection[str] = ()


_HERE = frozenset({Presence.PRESENT, Presence.REVERTED, Presence.FAILED})
_GRAVE = frozenset({"loses", "corrupts"})


def concerns(row: Row, setting: Setting) -> bool:
    """Whether the defect is here, and in a saver of this kind if it is a saver's."""
    return row.presence in _HERE and (not row.savers or setting.kind in {None, *row.savers})


def unanswered(rows: Iterable[Row], setting: Setting | None = None) -> list[Row]:
    """The rows of defects that lose or corrupt data, that concern the setting and nothing meets.

    By default the setting is `CachedHistorySaver` as it comes.
    """
    setting = setting or Setting()
    return [
        row
        for row in rows
        if concerns(row, setting)
        and _by_slug(row.slug).severity in _GRAVE
        and row.slug not in setting.accepted
        and not _met(row, setting)
    ]


def _met(row: Row, setting: Setting) -> bool:
    """Whether what this package does about the defect reaches the saver."""
    if row.presence is Presence.FAILED or row.remedy == "advice":
        return False
    if row.remedy == "guard":
        return setting.guarded
    return setting.wrapped and row.slug in setting.fixes


def _by_slug(slug: str) -> fixes.Defect:
    return next(defect for defect in fixes.DEFECTS if defect.slug == slug)
