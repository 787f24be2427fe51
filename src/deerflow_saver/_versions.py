"""Which releases are installed here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["DISTRIBUTIONS", "installed"]

DISTRIBUTIONS = (
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langchain-core",
)


def installed(*more: str) -> dict[str, str | None]:
    """The installed release of each distribution, None for an absent one."""
    return {name: _version(name) for name in (*more, *DISTRIBUTIONS)}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
