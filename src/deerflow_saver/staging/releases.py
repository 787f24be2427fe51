"""A LangGraph release is only reproduced together with the savers of its day.

`releases.toml` keeps what pip resolved on the day of some releases. Any other release is
resolved as if it were that day: what was uploaded more than half a day later is left out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from importlib import resources

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.installers import Installer

__all__ = ["DISTRIBUTIONS", "LATEST", "Release", "known", "resolve"]

LATEST = "latest"
DISTRIBUTIONS = (
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langchain-core",
)
"""What is pinned beside langgraph itself."""

_GRACE = timedelta(hours=12)  # The savers of a release may be uploaded a little after it.


@dataclass(frozen=True, slots=True)
class Release:
    """One langgraph release and the versions of its day.

    Attributes:
        version: of langgraph.
        versions: distribution name -> version, for each of `DISTRIBUTIONS`.
        before: the other dependencies are those uploaded before; None for any.

    """

    version: str
    versions: Mapping[str, str]
    before: datetime | None

    @property
    def pins(self) -> tuple[str, ...]:
        """Requirements that name exactly these versions."""
        pinned = {"langgraph": self.version, **self.versions}
        return tuple(f"{name}=={version}" for name, version in pinned.items())


@cache
def known() -> Mapping[str, Release]:
    """The releases of `releases.toml`, oldest first."""
    text = resources.files(__package__).joinpath("releases.toml").read_text(encoding="utf-8")
    return {
        version: Release(
            version,
            {name: entry[name] for name in DISTRIBUTIONS},
            datetime.combine(entry["uploaded"] + timedelta(days=1), time(), UTC),
        )
        for version, entry in tomllib.loads(text).items()
    }


def resolve(version: str, installer: Installer) -> Release:
    """The release `version`, or the newest for `"latest"`; unknown ones are asked of the index.

    Raises:
        StagingError: the index has no such release, or does not answer.

    """
    if version in known():
        return known()[version]
    wanted = "langgraph" if version == LATEST else f"langgraph=={version}"
    try:
        found = installer.lock([wanted], None)["langgraph"]
        if found.version in known():
            return known()[found.version]
        before = found.uploaded + _GRACE if found.uploaded else None
        locked = installer.lock([f"langgraph=={found.version}", *DISTRIBUTIONS], before)
    except StagingError as error:
        raise StagingError(f"langgraph {version} cannot be resolved: {error}") from error
    versions = {name: locked[name].version for name in DISTRIBUTIONS}
    return Release(found.version, versions, before)
