"""How long the state machines run: by default briefly enough for every change, or thoroughly.

`HYPOTHESIS_PROFILE=thorough` runs many more and longer histories. Every failure prints the
history as a program and a blob for `@reproduce_failure` on the machine's class.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings

__all__ = ["Effort", "effort"]


@dataclass(frozen=True, slots=True)
class Effort:
    """Examples per machine and steps per example, for databases in process and on a server."""

    local_examples: int
    server_examples: int
    steps: int

    def settings(self, *, server: bool, share: float = 1.0) -> settings:
        """Settings of one machine on one saver; `share` of the examples, for dear machines."""
        examples = self.server_examples if server else self.local_examples
        return settings(
            max_examples=max(2, round(examples * share)),
            stateful_step_count=self.steps,
            deadline=None,
            derandomize=False,
            print_blob=True,
            report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )


_PROFILES = {
    "default": Effort(local_examples=40, server_examples=15, steps=20),
    "thorough": Effort(local_examples=1000, server_examples=150, steps=40),
}


def effort() -> Effort:
    """The profile that the environment names."""
    name = os.environ.get("HYPOTHESIS_PROFILE", "default")
    try:
        return _PROFILES[name]
    except KeyError:
        message = f"HYPOTHESIS_PROFILE must be one of {', '.join(_PROFILES)}; got {name!r}"
        raise ValueError(message) from None
