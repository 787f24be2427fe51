"""Environments filled by venv and pip, where there is no uv."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deerflow_saver.errors import StagingError
from deerflow_saver.staging.caching import publish
from deerflow_saver.staging.installers import (
    INDEX_SECONDS,
    Locked,
    base_python,
    interpreter_of,
    run_installer,
    shown_index,
)

__all__ = ["Pip"]

_NEW_ENOUGH = "pip>=26"  # It can leave out what was uploaded after a moment.
_PATIENCE = {
    "PIP_DEFAULT_TIMEOUT": str(INDEX_SECONDS),
    "PIP_RETRIES": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
}


@dataclass(frozen=True, slots=True)
class Pip:
    """A pip that is new enough, in an environment of its own at `home`. See `Installer`."""

    home: Path

    def lock(self, requirements: Iterable[str], before: datetime | None) -> Mapping[str, Locked]:
        """Read pip's report; it tells no upload times, so langgraph's is asked of the index."""
        options = ["--dry-run", "--ignore-installed", "--report", "-"]
        said = self._run("install", "-qq", *options, *_uploaded_prior_to(before), *requirements)
        found = [item["metadata"] for item in json.loads(said)["install"]]
        return {
            item["name"]: Locked(
                item["version"],
                self._uploaded(item["version"]) if item["name"] == "langgraph" else None,
            )
            for item in found
        }

    def make(self, folder: Path) -> None:
        """Make it without pip: the one at `home` installs there."""
        run_installer("venv", [base_python(), "-m", "venv", "--without-pip", str(folder)], None, {})

    def install(self, python: Path, requirements: Iterable[str], before: datetime | None) -> None:
        """Install from afar; pip compiles what it installs."""
        self._run("install", "-qq", *_uploaded_prior_to(before), *requirements, python=python)

    def _run(self, *argv: str, python: Path | None = None) -> str:
        publish(self.home, _make_new_pip)
        target = ["--python", str(python)] if python else []
        command = [str(interpreter_of(self.home)), "-m", "pip", *target, argv[0], "-qq"]
        return run_installer(
            "pip", [*command, *argv[1:]], os.environ.get("PIP_INDEX_URL"), _PATIENCE
        )

    def _uploaded(self, version: str) -> datetime | None:
        """When langgraph `version` was uploaded, from the index's JSON page.

        Raises:
            StagingError: the index does not answer, or has no such page.

        """
        index = os.environ.get("PIP_INDEX_URL") or self._configured_index()
        accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
        page = urllib.request.Request(f"{index.rstrip('/')}/langgraph/", headers=accept)  # noqa: S310
        try:
            with urllib.request.urlopen(page, timeout=INDEX_SECONDS) as answer:  # noqa: S310
                files = json.load(answer)["files"]
        except (OSError, ValueError) as error:
            message = f"no upload dates from {shown_index(index)}: {error}"
            raise StagingError(message) from error
        names = (f"langgraph-{version}-", f"langgraph-{version}.tar")
        times = [file.get("upload-time") for file in files if file["filename"].startswith(names)]
        return min((datetime.fromisoformat(time) for time in times if time), default=None)

    def _configured_index(self) -> str:
        listed = self._run("config", "list")
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.endswith(".index-url"):
                return value.strip("'\"")
        return "https://pypi.org/simple"


def _make_new_pip(folder: Path) -> None:
    run_installer("venv", [base_python(), "-m", "venv", str(folder)], None, {})
    upgrade = ["-m", "pip", "install", "-qq", "--upgrade", _NEW_ENOUGH]
    index = os.environ.get("PIP_INDEX_URL")
    run_installer("pip", [str(interpreter_of(folder)), *upgrade], index, _PATIENCE)


def _uploaded_prior_to(before: datetime | None) -> list[str]:
    return ["--uploaded-prior-to", before.isoformat()] if before else []
