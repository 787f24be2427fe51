"""What fills an environment: the interface, and running an installer without waiting for ever.

An index that does not answer ends in a `StagingError` that names it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from deerflow_saver.errors import StagingError

__all__ = [
    "INDEX_SECONDS",
    "Installer",
    "Locked",
    "base_python",
    "interpreter_of",
    "run_installer",
    "shown_index",
]

INDEX_SECONDS = 30
"""How long an index may take to answer one request."""

_ALL_SECONDS = 900.0
_TOLD_LINES = 12
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_INHERITED = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT"})


@dataclass(frozen=True, slots=True)
class Locked:
    """What one requirement resolved to; `uploaded` where the index tells."""

    version: str
    uploaded: datetime | None


class Installer(Protocol):
    """A program that fills environments, on the user's index and with the user's settings.

    - `before` leaves out everything that was uploaded after that moment.
    - Whatever goes wrong is a `StagingError` that names the index.
    """

    def lock(self, requirements: Iterable[str], before: datetime | None) -> Mapping[str, Locked]:
        """Resolve with dependencies, install nothing: distribution name -> version."""

    def make(self, folder: Path) -> None:
        """Make an empty environment of this interpreter's version at `folder`."""

    def install(self, python: Path, requirements: Iterable[str], before: datetime | None) -> None:
        """Install into the environment whose interpreter is `python`, and compile."""


def interpreter_of(folder: Path) -> Path:
    """The interpreter of the environment at `folder`."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def base_python() -> str:
    """The interpreter behind this one's environment: it outlives that environment."""
    return getattr(sys, "_base_executable", None) or sys.executable


def shown_index(index: str | None) -> str:
    """Name the index in a message, without its password."""
    if not index:
        return "the default package index (PyPI, or the one in your installer's settings)"
    return f"the package index {_CREDENTIALS.sub('', index)}"


def run_installer(
    program: str, argv: Sequence[str], index: str | None, settings: Mapping[str, str]
) -> str:
    """Run `argv` outside of any project, with `settings` in its environment; its output.

    Raises:
        StagingError: it failed or took too long; the message names `program` and `index`.

    """
    variables = {name: value for name, value in os.environ.items() if name not in _INHERITED}
    try:
        ended = subprocess.run(  # noqa: S603 - uv or pip, with arguments made here
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=_ALL_SECONDS,
            cwd=tempfile.gettempdir(),
            env={**variables, **settings},
        )
    except subprocess.TimeoutExpired as error:
        raise StagingError(
            f"{program} did not end within {_ALL_SECONDS:.0f} s, installing from "
            f"{shown_index(index)}"
        ) from error
    except OSError as error:
        raise StagingError(f"{program} cannot be run: {error}") from error
    if ended.returncode:
        told = "\n".join((ended.stderr or ended.stdout).strip().splitlines()[-_TOLD_LINES:])
        raise StagingError(
            f"{program} failed, installing from {shown_index(index)}. It said:\n"
            f"{_CREDENTIALS.sub('', told)}"
        )
    return ended.stdout
