"""The Grafana dashboard asks for what `PrometheusMetrics` exports, and for all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deerflow_saver.instrumentation import PrometheusMetrics
from instrumentation.adapters import HIT, PAST, REFUSAL, WALK, served

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana-dashboard.json").read_text(encoding="utf-8")
)
METRIC = re.compile(r"\b(?:delta_channel|deerflow_saver)_\w+")
SELECTOR = re.compile(r"\b((?:delta_channel|deerflow_saver)_\w+)\{([^}]*)\}")
BY_PROMETHEUS = {"job", "instance"}


@pytest.fixture(scope="module")
def exported() -> dict[str, dict[str, set[str]]]:
    """Per sample name, its labels and their values."""
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    for event in (HIT, WALK, PAST, REFUSAL):
        metrics(event)
    saver = served(metrics)
    metrics.watch(saver)
    found: dict[str, dict[str, set[str]]] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def test_every_metric_it_asks_for_is_exported(exported: dict[str, Any]) -> None:
    asked = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert asked
    assert asked - exported.keys() == set()


def test_every_label_it_selects_by_is_there(exported: dict[str, Any]) -> None:
    for expression in expressions():
        for name, matchers in SELECTOR.findall(expression):
            for label, sign, value in re.findall(r'(\w+)(=~?|!=)"([^"]*)"', matchers):
                if label not in BY_PROMETHEUS:
                    assert sign == "="
                    assert value in exported[name][label], expression


def test_every_label_it_groups_and_names_by_is_there(exported: dict[str, Any]) -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            (name, *_) = METRIC.findall(target["expr"])
            there = exported[name].keys() | BY_PROMETHEUS
            grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
            assert {label for by in grouped for label in by.split(", ")} <= there
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= there


def test_every_metric_that_is_exported_is_shown(exported: dict[str, Any]) -> None:
    shown = " ".join(expressions())
    names = {
        re.sub(r"_(bucket|sum|count)$", "_bucket", name)
        for name in exported
        if not name.endswith("_created")
    }
    assert {name for name in names if not re.search(rf"\b{name}\b", shown)} == set()


def test_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len(set(titles)) == len(titles)
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
