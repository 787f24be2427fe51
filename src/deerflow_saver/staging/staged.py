"""The folders of staged changes: `<slug>/{patch.toml, upstream.patch, test_defect.py}`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deerflow_saver.errors import StagingError

__all__ = ["Staged", "find_folder", "load"]

_TEXTS = ("summary", "distribution")
_LISTS = ("upstream", "releases")


@dataclass(frozen=True, slots=True)
class Staged:
    """One change staged for upstream.

    Attributes:
        slug: the folder's name, and that of the runtime fix.
        folder: where it lies.
        summary: the defect in one line.
        distribution: whose files the diff changes.
        upstream: links to issues and pull requests.
        releases: the langgraph releases it is validated on unless told otherwise.

    """

    slug: str
    folder: Path
    summary: str
    distribution: str
    upstream: tuple[str, ...]
    releases: tuple[str, ...]

    @property
    def diff(self) -> Path:
        """The change, against the released files; paths as in `site-packages`."""
        return self.folder / "upstream.patch"

    @property
    def test(self) -> Path:
        """What fails on the release and passes with the diff."""
        return self.folder / "test_defect.py"


def find_folder(start: Path) -> Path:
    """The `patches` folder of `start` or of a folder above it.

    Raises:
        StagingError: there is none.

    """
    for folder in (start, *start.parents):
        if any((folder / "patches").glob("*/patch.toml")):
            return folder / "patches"
    message = (
        f"no patches/<slug>/patch.toml in {start} or above: the staged changes are in a checkout "
        "of deerflow-saver, not in the package. Run this there, or name the folder with --patches"
    )
    raise StagingError(message)


def load(folder: Path, slugs: Iterable[str] = ()) -> tuple[Staged, ...]:
    """The staged changes of those slugs, or all, by slug.

    Raises:
        StagingError: an unknown slug, a missing file, or metadata of another shape.

    """
    there = sorted(path.parent.name for path in folder.glob("*/patch.toml"))
    wanted = list(slugs) or there
    unknown = sorted(set(wanted).difference(there))
    if unknown:
        message = f"nothing staged as {', '.join(unknown)} in {folder}; there are: "
        raise StagingError(message + (", ".join(there) or "none"))
    return tuple(_load(folder / slug) for slug in wanted)


def _load(folder: Path) -> Staged:
    try:
        metadata = tomllib.loads((folder / "patch.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StagingError(f"{folder / 'patch.toml'}: {error}") from error
    texts = all(isinstance(metadata.get(name), str) for name in _TEXTS)
    lists = all(
        isinstance(metadata.get(name), list) and all(isinstance(x, str) for x in metadata[name])
        for name in _LISTS
    )
    if set(metadata) != {*_TEXTS, *_LISTS} or not texts or not lists:
        names = f"{', '.join(_TEXTS)} (texts), {', '.join(_LISTS)} (lists of texts)"
        raise StagingError(f"{folder / 'patch.toml'} must have exactly: {names}")
    staged = Staged(
        folder.name,
        folder,
        metadata["summary"],
        metadata["distribution"],
        tuple(metadata["upstream"]),
        tuple(metadata["releases"]),
    )
    for needed in (staged.diff, staged.test):
        if not needed.is_file():
            raise StagingError(f"{needed} is missing")
    return staged
