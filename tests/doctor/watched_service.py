"""A service with metrics: it says where they are, and does what its standard input tells it.

Run as a program; each line is a command, answered by one line.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from langgraph.checkpoint.memory import InMemorySaver
from prometheus_client import start_http_server

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from deerflow_saver.instrumentation import PrometheusMetrics
from support.conversation import conversation, question, thread


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    metrics = PrometheusMetrics()
    saver = CachedHistorySaver(InMemorySaver(), on_event=metrics)
    metrics.watch(saver)
    graph, config = conversation(saver), thread()
    server, _ = start_http_server(0, addr="127.0.0.1")
    say(f"http://127.0.0.1:{server.server_port}/metrics")
    for line in sys.stdin:
        command, _, number = line.strip().partition(" ")
        if command == "turn":
            graph.invoke(question(int(number)), config)
        elif command == "read":
            graph.get_state(config)
        elif command == "fork":
            older = list(graph.get_state_history(config))[2].config
            with suppress(NonHeadWriteError):
                graph.update_state(older, question(int(number)), as_node="__start__")
        say(command)


if __name__ == "__main__":
    main()
