"""`deerflow-saver doctor --watch`, as an operator runs it beside a service of its own process."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import IO, Any, Self

import pytest

from deerflow_saver.cli.__main__ import main

_TESTS = Path(__file__).parents[1]
EXPOSITION = """# TYPE delta_channel_read_counter_total counter
delta_channel_read_counter_total{outcome="hit",seed_kind="root"} %d
"""


class Process:
    """A Python program with pipes, ended with the block."""

    def __init__(self, *arguments: str) -> None:
        path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-u", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "no_proxy": "127.0.0.1"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def line(self, of: str = "stdout") -> str:
        stream: IO[str] = getattr(self._process, of)
        found = stream.readline()
        assert found, self._process.communicate()[1]
        return found.strip()

    def tell(self, *commands: str) -> None:
        assert self._process.stdin is not None
        for command in commands:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
            assert self.line() == command.split()[0]


def service() -> Process:
    return Process(str(_TESTS / "doctor" / "watched_service.py"))


def watcher(*arguments: str) -> Process:
    return Process("-m", "deerflow_saver.cli", "doctor", "--interval", "0.05", *arguments)


def test_an_operator_sees_what_a_running_service_does() -> None:
    with service() as served:
        url = served.line()
        served.tell("turn 0")
        with watcher("--json", "--watch", url) as watching:
            assert watching.line("stderr") == f"doctor: watching {url}"
            served.tell("turn 1", "read", "read", "fork 9")
            seen: Counter[str] = Counter()
            while not (seen["refused"] and seen["hits"]):  # however the lines are cut
                row = json.loads(watching.line())
                seen.update({name: row[name] for name in ("hits", "reads", "refused")})
            assert seen["reads"] >= seen["hits"] >= 2
            assert row["bytes"] > 0
            assert row["entries"] == 1


def test_a_service_that_restarts_does_not_end_the_watch() -> None:
    with page(200, EXPOSITION % 5) as (url, answers), watcher("--watch", url) as watching:
        watching.line("stderr")
        assert watching.line().startswith("time")
        answers[:] = [(503, "starting")]
        while "503" not in watching.line():
            pass
        answers[:] = [(200, EXPOSITION % 2)]
        while "anew" not in watching.line():
            pass


def test_it_ends_after_as_many_lines_as_were_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with page(200, EXPOSITION % 5) as (url, _):
        assert main(["doctor", "--watch", url, "--interval", "0.01", "--count", "3"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert {"shared/s", "outages"} <= set(header.split())
    assert header.split()[:3] == ["time", "reads/s", "hits/s"]
    assert len(rows) == 3
    assert all(len(row.split()) == len(header.replace("hit %", "hit%").split()) for row in rows)


def test_an_app_mounted_behind_a_redirect_is_watched_for_as_long_as_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with page(200, EXPOSITION % 5, redirects=True) as (url, _):
        assert main(["doctor", "--watch", url, "--interval", "0.01", "--count", "12"]) == 0
    assert "redirect" not in capsys.readouterr().out


def test_an_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    with page(200, EXPOSITION % 5) as (url, _):
        monkeypatch.setattr("deerflow_saver.cli.watch.time.sleep", interrupted)
        assert main(["doctor", "--watch", url]) == 130


def test_the_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with page(200, EXPOSITION % 5) as (url, _):
        monkeypatch.setenv("DEERFLOW_SAVER_METRICS_URL", url)
        assert main(["doctor", "--watch", "--interval", "0.01", "--count", "1"]) == 0


def test_a_password_is_sent_and_never_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with page(200, EXPOSITION % 5, password="hunter2") as (url, _):
        asked = ["--interval", "0.01", "--count", "1"]
        known = url.replace("://", "://ops:hunter2@")
        assert main(["doctor", "--watch", known, *asked]) == 0
        wrong = url.replace("://", "://ops:guessed@")
        assert main(["doctor", "--watch", wrong, *asked]) == 2
    said = "".join(capsys.readouterr())
    assert "401" in said
    assert "hunter2" not in said
    assert "guessed" not in said


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, "", "404"),
        (200, "<html>", "text format"),
        (200, "# TYPE up gauge\nup 1\n", "none of deerflow-saver's metrics"),
    ],
)
def test_a_page_without_our_metrics_is_an_error(
    status: int, body: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with page(status, body) as (url, _):
        assert main(["doctor", "--watch", url, "--count", "1"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--watch"], "DEERFLOW_SAVER_METRICS_URL"),
        (["--watch", "metrics.prom"], "http(s) URL"),
        (["--watch", "file:///etc/hosts"], "http(s) URL"),
        (["--watch", "http:///metrics"], "http(s) URL"),
        (["--watch", "http://[::1/metrics"], "http(s) URL"),
        (["--watch", "http://127.0.0.1:1/", "--interval", "0"], "greater than 0"),
        (["--watch", "http://127.0.0.1:1/", "--count", "0"], "greater than 0"),
        (["--watch", "http://127.0.0.1:1/", "--scratch-thread"], "--scratch-thread"),
        (["--watch", "http://127.0.0.1:1/", "--accept", "torn-update"], "--accept"),
        (["--watch", "http://127.0.0.1:1/", "--db", "x.sqlite"], "not allowed with"),
        (["--watch", "http://127.0.0.1:1/", "--count", "1"], "refused"),
        (["--interval", "1"], "--watch"),
        (["--count", "1"], "--watch"),
    ],
)
def test_bad_usage_is_said(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DEERFLOW_SAVER_METRICS_URL", raising=False)
    assert main(["doctor", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_missing_client_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    assert main(["doctor", "--watch", "http://127.0.0.1:1/"]) == 2
    assert "deerflow-saver[prometheus]" in capsys.readouterr().err


@contextmanager
def page(
    status: int, body: str, password: str | None = None, *, redirects: bool = False
) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """A server whose every page is the one in the list, which may be replaced.

    With `redirects` it is behind the slash that Starlette's mounted apps want.
    """
    answers = [(status, body)]
    wanted = f"Basic {base64.b64encode(f'ops:{password}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = answers[0]
            if password is not None and self.headers["Authorization"] != wanted:
                code, text = 401, ""
            if redirects and not self.path.endswith("/"):
                code, text = 307, ""
            self.send_response(code)
            if code == 307:
                self.send_header("Location", f"{self.path}/")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics", answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
