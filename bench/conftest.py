"""`pytest bench --benchmark-only`: runs what the suite's own runs leave out, beside a baseline.

The baseline in bench/baseline/ is compared with `--benchmark-compare`, and made anew with
`--benchmark-save=NAME`. It tells most on the machine it was made on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BASELINE = Path(__file__).parent / "baseline"
_IDENTIFIES = ("node",)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Asked for by name, benchmarks are on: the project's default options turn them off."""
    if config.getoption("benchmark_only"):
        config.option.benchmark_enable = True
    if config.option.benchmark_storage == "file://./.benchmarks":
        config.option.benchmark_storage = f"file://{BASELINE}"


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: Any) -> None:  # noqa: ARG001 - the hook's signature
    """Leave out whose machine it is."""
    for name in _IDENTIFIES:
        machine_info.pop(name, None)
