"""A graph that runs on a wrapped saver has the states it would have on the raw one."""

from __future__ import annotations

import pytest

from differential.graph_machine import GraphHistories
from differential.hosts import Host
from differential.machines import run
from differential.profiles import effort


@pytest.mark.timeout(600, method="thread")
def test_any_history_of_a_graph_reads_the_same_wrapped_and_raw(host: Host) -> None:
    run(GraphHistories, effort().settings(server=host.on_a_server, share=0.3), host=host)


@pytest.mark.timeout(600, method="thread")
def test_any_history_of_a_graph_is_the_same_on_two_databases(host: Host, twin: Host) -> None:
    settings = effort().settings(server=host.on_a_server, share=0.3)
    run(GraphHistories, settings, host=host, twin=twin)
