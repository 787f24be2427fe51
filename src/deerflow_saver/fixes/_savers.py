"""Findings about saver classes, one sight for each class that is installed."""

from __future__ import annotations

from collections.abc import Callable

from deerflow_saver.fixes._fix import Finding
from deerflow_saver.walks.habits import Sight, installed

__all__ = ["seen_on"]


def seen_on(look: Callable[[type], Sight], *families: str) -> Callable[[], Finding]:
    """A probe that looks at every installed class of the families.

    It raises an `ImportError` if none is installed, and says so for a class that cannot be
    probed: that one is treated as if it had the defect.
    """

    def probe() -> Finding:
        sights = {cls: _sight(look, cls) for cls in installed(*families)}
        wrong = {cls: sight for cls, sight in sights.items() if sight.wrong}
        evidence = "; ".join(
            f"{cls.__name__}: expected {sight.expected!r}, read {sight.read!r}"
            for cls, sight in (wrong or sights).items()
        )
        where = {family for family in families for cls in wrong if family in cls.__module__}
        return Finding(bool(wrong), evidence, tuple(sorted(where)))

    return probe


def _sight(look: Callable[[type], Sight], cls: type) -> Sight:
    try:
        return look(cls)
    except Exception as error:  # noqa: BLE001 - a release that cannot be probed is not trusted
        return Sight(wrong=True, expected="a class that can be probed", read=error)
