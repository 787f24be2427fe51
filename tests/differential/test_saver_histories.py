"""Whatever is called on a wrapped saver, in whatever order: its reads are the raw saver's reads."""

from __future__ import annotations

import pytest

from differential.hosts import Host
from differential.machines import run
from differential.profiles import effort
from differential.saver_machine import SaverHistories


@pytest.mark.timeout(600, method="thread")
def test_any_history_of_saver_calls_reads_the_same_wrapped_and_raw(host: Host) -> None:
    run(SaverHistories, effort().settings(server=host.on_a_server), host=host)
