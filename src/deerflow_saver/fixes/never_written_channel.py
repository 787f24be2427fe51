"""A delta channel that no step ever wrote is looked for down to the root at every load."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from deerflow_saver.fixes._fix import Defect, Finding, InWrapper

__all__ = ["DEFECT"]


def _probe() -> Finding:
    """Which channels' histories a load asks for."""
    from langgraph.channels.delta import DeltaChannel

    from deerflow_saver.fixes._scenes import Saver, compiled, extend, thread

    asked: list[str] = []

    class Asked(Saver):
        def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
            asked.extend(channels)
            return super().get_delta_channel_history(config=config, channels=channels)

    words: Any = Annotated[list[str], DeltaChannel(extend)]
    schema: Any = TypedDict("schema", {"log": words, "never": words}, total=False)
    graph = compiled({"node": lambda _state: {"log": ["out"]}}, schema=schema, saver=Asked())
    graph.invoke({"log": ["in"]}, thread())
    asked.clear()
    graph.get_state(thread())
    return Finding("never" in asked, f"a load asks for {sorted(asked)}")


DEFECT = Defect(
    slug="never-written-channel",
    symptom="loads walk the whole thread for a channel that was never written",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=InWrapper("The cache keeps what was walked, an empty history as well."),
    severity="slow",
)
