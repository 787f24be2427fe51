"""Hooks for `on_event`: the log, Prometheus, OpenTelemetry, and several at once.

```python
metrics = PrometheusMetrics()
saver = CachedHistorySaver(inner, on_event=combine(metrics, EventLogger()))
metrics.watch(saver)
```

`PrometheusMetrics` needs the extra `prometheus`, `OpenTelemetryMetrics` the extra `otel`;
both are imported when such a hook is made.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.events import GuardEvent, HistoryEvent, OnEvent, emit
from deerflow_saver.instrumentation._logging import EventLogger
from deerflow_saver.instrumentation._otel import OpenTelemetryMetrics
from deerflow_saver.instrumentation._prometheus import PrometheusMetrics

__all__ = ["EventLogger", "OpenTelemetryMetrics", "PrometheusMetrics", "combine"]


def combine(*hooks: OnEvent | None) -> OnEvent | None:
    """One hook that calls `hooks` in their order; one that raises is logged, the others go on.

    None among them is left out. Of nothing it makes None, which costs nothing.

    Raises:
        InvalidConfigError: one of them cannot be called.

    """
    wanted: tuple[Any, ...] = tuple(hook for hook in hooks if hook is not None)
    for hook in wanted:
        if not callable(hook):
            msg = f"combine takes hooks, which are callable; got {type(hook).__name__}"
            raise InvalidConfigError(msg)
    if len(wanted) < 2:  # noqa: PLR2004 - nothing to combine
        return wanted[0] if wanted else None

    def combined(event: HistoryEvent | GuardEvent) -> None:
        for hook in wanted:
            emit(hook, event)

    return combined
