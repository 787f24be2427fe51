"""Plots of `bench ab`, as PNG and as SVG: times against depth, hits, bytes, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deerflow_saver.bench.case import NEVER, SIDES
from deerflow_saver.bench.pairs import Group
from deerflow_saver.cli.errors import needs

__all__ = ["write_plots"]

_COLOURS = dict(zip(SIDES, ("#444444", "#1f77b4", "#2ca02c", "#d62728"), strict=True))
_DEEP = ("agent", "append", "cold", "workers", "paging", "polling")
"""Scenarios whose cases differ in depth."""
_SIZES = {
    "hit_ratio": ("hit ratio", 1),
    "held_bytes": ("memory of one read thread, KiB", 2**10),
    "redis_bytes": ("bytes in Redis, KiB", 2**10),
    "peak_rss_bytes": ("process, MiB", 2**20),
}


def write_plots(groups: Sequence[Group], folder: Path, clock: str = "wall") -> list[Path]:
    """Draw what there are figures for.

    Args:
        groups: of `pairs.grouped`.
        folder: where the files go; made if it is missing.
        clock: `wall` or `cpu`.

    Returns:
        The PNG files; an SVG of the same name stands beside each.

    """
    needs("matplotlib", "bench")
    import matplotlib as mpl

    mpl.use("Agg")  # no display
    mpl.rcParams["svg.hashsalt"] = "deerflow-saver"  # the same file from the same figures
    folder.mkdir(parents=True, exist_ok=True)
    return [_saved(draw, folder / name) for name, draw in _plots(groups, clock)]


def _plots(groups: Sequence[Group], clock: str) -> Iterator[tuple[str, Callable[[Any], None]]]:
    usual = [g for g in groups if g.case.snapshot_frequency == NEVER and g.case.writers == 1]
    for scenario in _DEEP:
        for backend in dict.fromkeys(g.case.backend for g in usual):
            found = [g for g in usual if (g.case.scenario, g.case.backend) == (scenario, backend)]
            if len({g.depth for g in found}) > 1:
                name = f"{scenario}-{backend}"
                yield name, partial(_against_depth, groups=found, clock=clock)
    for field, (label, unit) in _SIZES.items():
        found = [g for g in usual if any(g.value(s, field) is not None for s in g.sides)]
        if found:
            name = field.replace("_", "-")
            yield name, partial(_bars, groups=found, field=field, label=label, unit=unit)


def _against_depth(figure: Any, groups: Sequence[Group], clock: str) -> None:
    groups = sorted(groups, key=lambda group: group.depth)
    metrics = list(dict.fromkeys(m for group in groups for m in group.metrics))
    axes = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axis, metric in zip(axes, metrics, strict=True):
        for side in dict.fromkeys(s for group in groups for s in group.sides):
            measured = [group for group in groups if group.samples(side, metric, clock)]
            for share, style in ((0.5, "-"), (0.95, ":")):
                axis.plot(
                    [group.depth for group in measured],
                    [group.quantile(side, metric, share, clock) for group in measured],
                    style,
                    color=_COLOURS[side],
                    marker="o" if style == "-" else None,
                    label=f"{side} p{share * 100:.0f}",
                )
        axis.set(xscale="log", yscale="log", xlabel="writes since the last snapshot", title=metric)
    axes[0].set_ylabel(f"{clock} ms")
    axes[-1].legend(fontsize="x-small")
    figure.suptitle(f"{groups[0].case.scenario}, {groups[0].case.backend}")
    figure.set_size_inches(4 * len(metrics) + 1, 4)


def _bars(figure: Any, groups: Sequence[Group], field: str, label: str, unit: int) -> None:
    axis = figure.subplots()
    bars = [
        (f"{g.case.scenario}, {g.case.backend}, {g.depth:,}", side, value / unit)
        for g in groups
        for side in g.sides
        if (value := g.value(side, field)) is not None
    ]
    names = list(dict.fromkeys(name for name, _, _ in bars))
    sides = [side for side in SIDES if any(side == s for _, s, _ in bars)]
    height = 0.8 / len(sides)
    for number, side in enumerate(sides):
        mine = [(names.index(name), value) for name, s, value in bars if s == side]
        axis.barh(
            [place + number * height for place, _ in mine],
            [value for _, value in mine],
            height,
            color=_COLOURS[side],
            label=side,
        )
    axis.set_yticks([place + 0.4 for place in range(len(names))], names, fontsize="x-small")
    axis.invert_yaxis()
    axis.set_xlabel(label)
    axis.legend(fontsize="x-small")
    figure.set_size_inches(8, 1.5 + 0.3 * len(names))


def _saved(draw: Callable[[Any], None], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    draw(figure)
    png = path.with_name(f"{path.name}.png")
    figure.savefig(png, dpi=120, metadata={"Software": None})
    figure.savefig(path.with_name(f"{path.name}.svg"), metadata={"Date": None})
    return png
