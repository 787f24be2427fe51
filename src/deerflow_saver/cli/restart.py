"""Read a thread as a restarted application does: new connection, cold cache, nothing known.

Databases are read by another process, started as `python -m deerflow_saver.cli.restart`;
what only one process can see is read in this one, by new savers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deerflow_saver.cli.backends import Place
from deerflow_saver.cli.comparing import digest, exact
from deerflow_saver.cli.sides import NAMES, Agent, Name, Side, newest_states, open_side

__all__ = ["Restarted", "digests", "restart"]

_ROUNDS = 6
"""Cold reads of each side, in turns; the first is not timed, the process itself being cold."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """What the restarted application read: a digest for each state, and how long the first took."""

    digests: list[str]
    seconds: list[float]


def restart(agent: Agent, places: Mapping[Name, Place]) -> dict[Name, Restarted]:
    """Read both sides' threads anew."""
    if any(place.backend == "memory" for place in places.values()):
        return _read(agent, places)
    # By standard input: arguments, and with them a password, are visible to every user.
    asked = {"agent": asdict(agent), "places": places}
    command = [sys.executable, "-W", "ignore", "-m", __name__]
    ended = subprocess.run(  # noqa: S603 - this interpreter, this module
        command, input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True
    )
    answer = json.loads(ended.stdout)
    return {name: Restarted(**answer[name]) for name in NAMES}


def digests(side: Side) -> list[str]:
    """Name the state and the newest states of the history, ids and times included."""
    return [digest(exact(state)) for state in newest_states(side.graph)]


def _read(agent: Agent, places: Mapping[Name, Place]) -> dict[Name, Restarted]:
    read: dict[Name, Restarted] = {name: Restarted([], []) for name in NAMES}
    for number in range(_ROUNDS):
        for name in NAMES if number % 2 else reversed(NAMES):
            with open_side(name, agent, places[name]) as side:
                side.warm_up()
                if number == 0:
                    read[name].digests.extend(digests(side))
                else:
                    side.state()
                    read[name].seconds.extend(side.seconds["get_state"])
    return read


def _main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    places = {name: Place(*asked["places"][name]) for name in NAMES}
    read = _read(Agent(**asked["agent"]), places)
    json.dump({name: asdict(restarted) for name, restarted in read.items()}, sys.stdout)


if __name__ == "__main__":
    _main()
