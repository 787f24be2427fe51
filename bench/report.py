"""The benchmark's table, and the page in the docs that shows it.

The page is written from `bench/results/*.json`, the raw figures of the runs it tells of.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "RESULTS", "table", "write_page"]

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_HISTORY = "get_delta_channel_history"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

Target = Callable[[int], float | None]

_HEADINGS: dict[str, tuple[str, Target]] = {
    "read": ("History of the next turn's head", {10: 0.6, 100: 0.15, 1000: 0.08}.get),
    "cold": ("The same through a new cache", lambda _: 1.1),
    "turn": ("A whole turn", lambda depth: 0.3 if depth == 1000 else 1.0),  # noqa: PLR2004
    "states": ("`get_state_history(limit=10)`", {1000: 0.2}.get),
    "states-cold": ("The same through a new cache", lambda _: None),
}
"""Per metric its heading, and by depth the ratio that the wrapper is meant to reach."""


def table(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """All sections for `outcomes`, as `Outcome.as_dict` gives them, and memory records."""
    cells = [outcome for outcome in outcomes if "cell" in outcome]
    memory = [outcome for outcome in outcomes if "held" in outcome]
    sections = [_times(metric, cells) for metric in _HEADINGS] + [_calls(cells)]
    return "\n\n".join([*sections, _memory(memory)] if memory else sections) + "\n"


def write_page() -> None:
    """Put the table for the kept results between the page's markers."""
    outcomes = [
        outcome
        for path in sorted(RESULTS.glob("*.json"))
        for outcome in json.loads(path.read_text(encoding="utf-8"))
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(outcomes)}\n{END}{after}", encoding="utf-8")


def _times(metric: str, cells: Iterable[Mapping[str, Any]]) -> str:
    heading, target = _HEADINGS[metric]
    rows = []
    for outcome in cells:
        medians = {a: statistics.median(s) for a, s in outcome["seconds"][metric].items()}
        raw, depth = medians["raw"], outcome["cell"]["depth"]
        wanted = target(depth)
        rows.append(
            [
                *_cell(outcome),
                f"{raw * 1e3:.2f}",
                f"{medians['wrapped'] / raw:.3f}",
                f"{medians['alternative'] / raw:.3f}",
                "" if wanted is None else f"≤ {wanted}",
            ]
        )
    header = ["saver", "walk ends at", "writes", "raw ms", "wrapped ÷ raw", "alternative ÷ raw"]
    return f"### {heading}\n\n" + _markdown([*header, "aim"], rows)


def _calls(cells: Iterable[Mapping[str, Any]]) -> str:
    rows = []
    for outcome in cells:
        calls = [outcome["calls"][arm] for arm in ("raw", "wrapped", "alternative")]
        shown = [f"{c.get('get_tuple', 0):g} + {c.get(_HISTORY, 0):g}" for c in calls]
        rows.append([*_cell(outcome), *shown])
    header = ["saver", "walk ends at", "writes", "raw", "wrapped", "alternative"]
    return "### Calls to the saver in one turn: `get_tuple` + history\n\n" + _markdown(header, rows)


def _memory(records: Iterable[Mapping[str, Any]]) -> str:
    rows = []
    for record in records:
        held = record["held"]
        ratios = [f"{held[arm] / held['raw']:.2f}" for arm in ("wrapped", "alternative")]
        rows.append([str(record["depth"]), f"{held['raw'] / 1024:.0f}", *ratios, "≤ 2.5"])
    header = ["writes", "decoded KiB", "wrapped ÷ decoded", "alternative ÷ decoded", "aim"]
    return "### Memory of one thread that was read\n\n" + _markdown(header, rows)


def _cell(outcome: Mapping[str, Any]) -> list[str]:
    cell = outcome["cell"]
    end = {"seeded": "a snapshot", "root": "the root"}[cell["start"]]
    return [cell["backend"], end, f"{cell['depth']:,}"]


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
