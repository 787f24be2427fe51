"""What a release is like without and with a fix."""

from __future__ import annotations

from deerflow_saver import fixes
from deerflow_saver.fixes import Presence

__all__ = ["as_released", "mended"]


def as_released(slug: str) -> bool:
    """Whether the installed release has the defect, no patch being in place."""
    (row,) = fixes.status([slug])
    assert row.presence is not Presence.FIXED, "a patch is in place"
    return row.presence is not Presence.ABSENT


def mended(slug: str) -> bool:
    """Whether a patch mends it; False where the release never had it or cannot be patched."""
    return fixes.apply([slug])[0].presence is Presence.FIXED
