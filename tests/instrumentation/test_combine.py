"""Several hooks at once, and adapters whose extra is not there."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver, InvalidConfigError
from deerflow_saver.instrumentation import combine
from instrumentation.adapters import HIT, served


def test_each_hook_gets_each_event_in_order() -> None:
    seen: list[tuple[str, Any]] = []
    hook = combine(lambda e: seen.append(("first", e)), None, lambda e: seen.append(("second", e)))
    assert hook is not None
    hook(HIT)
    assert seen == [("first", HIT), ("second", HIT)]


def test_a_hook_that_raises_does_not_silence_the_next(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Any) -> None:
        message = "no room"
        raise OSError(message)

    seen: list[Any] = []
    with caplog.at_level(logging.ERROR, "deerflow_saver"):
        saver = served(combine(broken, seen.append))
    assert seen
    assert len(caplog.records) == len(seen)
    assert "no room" in caplog.text
    assert saver.cache_info().errors == 0


def test_one_hook_is_itself_and_none_is_none() -> None:
    def hook(event: Any) -> None:
        """Do nothing."""

    assert combine(None, hook) is hook
    assert combine() is combine(None) is None
    CachedHistorySaver(InMemorySaver(), on_event=combine())


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="str"):
        combine("stdout")  # type: ignore[arg-type]


WITHOUT = """
import sys
sys.modules["{module}"] = None
from deerflow_saver.instrumentation import {hook}
try:
    {hook}()
except ModuleNotFoundError as error:
    assert "deerflow-saver[{extra}]" in str(error), error
else:
    raise SystemExit("made without its library")
"""


@pytest.mark.parametrize(
    ("module", "hook", "extra"),
    [
        ("prometheus_client", "PrometheusMetrics", "prometheus"),
        ("opentelemetry.metrics", "OpenTelemetryMetrics", "otel"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(module: str, hook: str, extra: str) -> None:
    program = WITHOUT.format(module=module, hook=hook, extra=extra)
    subprocess.run([sys.executable, "-c", program], check=True)
