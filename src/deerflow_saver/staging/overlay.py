"""A copy of one installed distribution that comes before the original on the path.

LangGraph's distributions share the namespace package `langgraph`, and each owns whole
packages below it: with a copy in front, that distribution's code comes from the copy and
everything else from the environment, which is never changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.environments import Environment

__all__ = ["Reject", "apply_diff", "copy_distribution", "distribution_version"]

_LIST_FILES = """
import importlib.metadata, json, sys
found = importlib.metadata.distribution(sys.argv[1])
files = {str(file): str(file.locate()) for file in found.files or () if file.suffix != ".pyc"}
json.dump({"version": found.version, "files": files}, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Reject:
    """A diff that does not apply cleanly.

    Attributes:
        said: what the program that applies diffs said.
        hunks: the rejected hunks, as unified diffs.

    """

    said: str
    hunks: str


def distribution_version(environment: Environment, distribution: str) -> str:
    """The version of a distribution in the environment."""
    return str(_describe(environment, distribution)["version"])


def copy_distribution(environment: Environment, distribution: str, folder: Path) -> None:
    """Copy the distribution's modules into `folder`, as they lie in `site-packages`.

    Raises:
        StagingError: it is not installed there, or as a link to a checkout.

    """
    copied = 0
    for name, place in _describe(environment, distribution)["files"].items():
        parts = Path(name).parts
        if ".." in parts or parts[0].endswith((".dist-info", ".pth")):
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(place, target)
        copied += 1
    if not copied:
        message = f"{distribution} of langgraph {environment.name} is not installed as files"
        raise StagingError(message)


def _describe(environment: Environment, distribution: str) -> dict[str, Any]:
    ended = environment.run(["-c", _LIST_FILES, distribution])
    if ended.returncode:
        message = f"{distribution} is not installed beside langgraph {environment.name}"
        raise StagingError(f"{message}: {ended.stderr.strip().splitlines()[-1:]}")
    described: dict[str, Any] = json.loads(ended.stdout)
    return described


def apply_diff(folder: Path, diff: Path) -> Reject | None:
    """Apply a unified diff to the files in `folder`; what was rejected, or None.

    Lines may have moved, but every line of context must be there. git applies it, or where
    that is not installed, patch.

    Raises:
        StagingError: neither is installed.

    """
    program = next((name for name in _APPLIERS if shutil.which(name)), None)
    if program is None:
        message = "applying a diff needs git or patch, and neither is on the path"
        raise StagingError(message)
    # In a folder of some repository, git would take the paths from that repository's root.
    variables = {name: v for name, v in os.environ.items() if not name.startswith("GIT_")}
    ended = subprocess.run(  # noqa: S603 - git or patch, on a diff the user named
        [*_APPLIERS[program], str(diff.absolute())],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**variables, "GIT_CEILING_DIRECTORIES": str(folder.parent), "LC_ALL": "C"},
    )
    if ended.returncode == 0:
        return None
    left = sorted(folder.rglob("*.rej"))
    hunks = "\n".join(path.read_text(encoding="utf-8").strip() for path in left)
    return Reject(_said(f"{ended.stdout}{ended.stderr}".strip()), hunks)


def _said(text: str) -> str:
    """Leave out the lines that git searched for: they are the hunk again."""
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    return "\n".join(line for line in lines if "while searching for" not in line) or text


_APPLIERS = {
    "git": ("git", "apply", "-p1", "--reject", "--whitespace=nowarn"),
    "patch": ("patch", "-p1", "--batch", "--forward", "--fuzz=0", "--input"),
}
