"""What a comparison found, as data and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from deerflow_saver.cli.counting import KINDS
from deerflow_saver.cli.duel import Duel
from deerflow_saver.cli.sides import NAMES, READ_LIMIT, Side

__all__ = ["as_data", "as_table"]

MEASURED = {
    "turn": "turn",
    "get_state": "get_state",
    "get_state_history": f"history of {READ_LIMIT}",
    "get_delta_channel_history": "delta history",
    "cold get_state": "cold get_state",
}
_WIDTH = 17


def as_data(duel: Duel, difference: str | None) -> dict[str, Any]:
    """Plain data for `--json`: medians in milliseconds, None where nothing was measured."""
    return {
        "backend": duel.backend,
        "equal": difference is None,
        "difference": difference,
        "turns": duel.finished,
        "states_compared": duel.compared,
        "milliseconds": {what.replace(" ", "_"): _medians(duel, what) for what in MEASURED},
        "saver_calls_per_turn": {name: _calls_per_turn(side) for name, side in duel.sides.items()},
        "cache": duel.cache.as_dict(),
    }


def as_table(data: dict[str, Any]) -> str:
    """One backend's figures, within 100 columns."""
    return "\n".join(_lines(data))


def _lines(data: dict[str, Any]) -> Iterator[str]:
    milliseconds = data["milliseconds"].values()
    yield _row(data["backend"], MEASURED.values())
    for name in NAMES:
        yield _row(f"  {name}", (_number(row[name], " ms") for row in milliseconds))
    yield _row("  raw / wrapped", (_number(row["ratio"], " x ") for row in milliseconds))
    yield "  calls a turn   " + _calls("raw", data)
    yield "                 " + _calls("wrapped", data)
    cache = data["cache"]
    yield (
        f"  delta histories: {cache['hits']} hits, {cache['composed']} caught up with, "
        f"{cache['walks']} walks; cache {cache['bytes'] / 2**20:.1f} MiB"
    )


def _row(name: str, cells: Any) -> str:
    return f"{name:<15}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells)


def _number(value: float | None, unit: str) -> str:
    return "-   " if value is None else f"{value:,.{2 if value < 100 else 0}f}{unit}"  # noqa: PLR2004


def _calls(name: str, data: dict[str, Any]) -> str:
    calls = data["saver_calls_per_turn"].get(name, {})
    return f"{name + ':':<9}" + ", ".join(f"{number:g} {kind}" for kind, number in calls.items())


def _medians(duel: Duel, what: str) -> dict[str, float | None]:
    found = [_median(side.seconds[what]) for side in duel.sides.values()]
    raw, wrapped = found if len(found) == len(NAMES) else (None, None)
    ratio = round(raw / wrapped, 2) if raw and wrapped else None
    return {"raw": raw, "wrapped": wrapped, "ratio": ratio}


def _median(seconds: list[float]) -> float | None:
    return round(median(seconds) * 1000, 4) if seconds else None


def _calls_per_turn(side: Side) -> dict[str, float]:
    turns = len(side.seconds["turn"]) or 1
    return {kind: round(side.calls["turn"][kind] / turns, 2) for kind in KINDS}
