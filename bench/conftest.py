"""Lets `pytest bench --benchmark-only` run, although the suite's own runs measure nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Asked for by name, benchmarks are on: the project's default options turn them off."""
    if config.getoption("benchmark_only"):
        config.option.benchmark_enable = True
