"""The doctor is asked about LangGraph as it was released, and each state of it is probed once."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import pytest

from deerflow_saver import fixes

_SORTING = {
    "memory": "langgraph.checkpoint.memory",
    "sqlite": "langgraph.checkpoint.sqlite._delta",
    "postgres": "langgraph.checkpoint.postgres.base",
}
_probed: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def released(usual_fixes: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No patch is in place, and what the probes said of the same patches is not asked again."""
    probe = fixes.status

    def status() -> Any:
        key = fixes.applied(), os.environ.get("DEERFLOW_SAVER_FIXES")
        if key not in _probed:
            _probed[key] = probe()
        return _probed[key]

    fixes.revert(fixes.applied())
    monkeypatch.setattr(fixes, "status", status)


@pytest.fixture
def order_of() -> Callable[[str], str]:
    """By what the installed saver of a kind sorts parallel writes: older releases know no path."""

    def order(kind: str) -> str:
        module = importlib.import_module(_SORTING[kind])
        return "task path" if hasattr(module, "writes_sort_key") else "task id"

    return order
