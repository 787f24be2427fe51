"""`update_state` that dies between its writes and its checkpoint.

The writes are stored under the id of a pending task, so the next resume takes the task as
finished with them, whatever the kind of channel.
"""

from __future__ import annotations

from typing import Any

from deerflow_saver.fixes._fix import Advice, Defect, Finding

__all__ = ["DEFECT"]


def _probe() -> Finding:
    from deerflow_saver.fixes._scenes import Saver, compiled, said, thread

    class Torn(Saver):
        armed = False

        def put(self, *args: Any, **kwargs: Any) -> Any:
            if self.armed:
                self.armed = False
                raise _ConnectionLostError
            return super().put(*args, **kwargs)

    ran: list[str] = []
    saver = Torn()
    graph = compiled({"node": lambda _state: ran.append("node")}, saver=saver, interrupt_before="*")
    graph.invoke(said("in"), thread())
    saver.armed = True
    try:
        graph.update_state(thread(), said("U"), as_node="node")
    except _ConnectionLostError:
        graph.invoke(None, thread())
    values = graph.get_state(thread()).values
    return Finding(
        not ran, f"after a failed update, the resumed run ran {ran}, ref is {values['ref']}"
    )


class _ConnectionLostError(Exception):
    """What the saver fails with."""


DEFECT = Defect(
    slug="torn-update",
    symptom="a failed update_state counts as the output of the node it names",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=Advice(
        "After an update_state that raised, send the same update again before the thread is "
        "resumed, or update as a node that is not about to run."
    ),
    severity="corrupts",
)
