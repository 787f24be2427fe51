"""Environments filled by uv."""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deerflow_saver.staging.installers import INDEX_SECONDS, Locked, base_python, run_installer

__all__ = ["Uv"]

_PATIENCE = {"UV_HTTP_TIMEOUT": str(INDEX_SECONDS), "UV_HTTP_RETRIES": "1"}


@dataclass(frozen=True, slots=True)
class Uv:
    """The uv at `binary`. See `Installer` for the methods."""

    binary: str

    def lock(self, requirements: Iterable[str], before: datetime | None) -> Mapping[str, Locked]:
        """Read it from the lock file that uv writes, upload times included."""
        with tempfile.TemporaryDirectory(prefix="deerflow-saver-lock-") as folder:
            wanted, locked = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
            wanted.write_text("\n".join(requirements), encoding="utf-8")
            output = ["--quiet", "--format", "pylock.toml", "--output-file", str(locked)]
            python = ["--python", sys.executable, *_exclude_newer(before)]
            self._run("pip", "compile", str(wanted), *output, *python)
            packages = tomllib.loads(locked.read_text(encoding="utf-8"))["packages"]
        return {package["name"]: _locked(package) for package in packages}

    def make(self, folder: Path) -> None:
        """Make it without pip."""
        self._run("venv", "--quiet", "--no-project", "--python", base_python(), str(folder))

    def install(self, python: Path, requirements: Iterable[str], before: datetime | None) -> None:
        """Install from uv's cache where it can."""
        options = ["--quiet", "--python", str(python), "--compile-bytecode"]
        self._run("pip", "install", *options, *_exclude_newer(before), *requirements)

    def _run(self, *argv: str) -> None:
        index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
        run_installer("uv", [self.binary, *argv], index, _PATIENCE)


def _exclude_newer(before: datetime | None) -> list[str]:
    return ["--exclude-newer", before.isoformat()] if before else []


def _locked(package: Mapping[str, Any]) -> Locked:
    files = package.get("wheels") or [package.get("sdist", {})]
    times = [file["upload-time"] for file in files if "upload-time" in file]
    return Locked(package["version"], min(times, default=None))
